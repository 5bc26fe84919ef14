// The image of the conformance tests. Its entrypoint is "/conformance print"
// and its command "default"; the binary is setuid root.
//
//	conformance print WORD...         print the words
//	conformance euid                  print the effective user id
//	conformance grpc ADDRESS          serve gRPC health checks
//	conformance serve                 serve HTTP (8080), HTTPS (8443) and UDP (8081)
//	conformance get URL               print what the URL answers
//	conformance udp ADDRESS           send a datagram and print the answer
//	conformance dig udp|tcp TYPE NAME look a name up: A, CNAME, SRV or PTR
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// timeout bounds what a client command waits for.
const timeout = 5 * time.Second

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: conformance print|euid|grpc|serve|get|udp|dig [ARGUMENT...]")
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var err error
	switch args := os.Args[2:]; {
	case os.Args[1] == "print":
		fmt.Println(strings.Join(args, " "))
	case os.Args[1] == "euid":
		fmt.Println(os.Geteuid())
	case os.Args[1] == "grpc" && len(args) == 1:
		err = serveHealth(args[0])
	case os.Args[1] == "serve":
		err = serve()
	case os.Args[1] == "get" && len(args) == 1:
		err = get(ctx, args[0])
	case os.Args[1] == "udp" && len(args) == 1:
		err = datagram(ctx, args[0])
	case os.Args[1] == "dig" && len(args) == 3:
		err = dig(ctx, args[0], args[1], args[2])
	default:
		err = fmt.Errorf("unknown command %q", os.Args[1:])
	}
	if err != nil {
		log.Fatal(err)
	}
}

// serveHealth answers gRPC health checks with SERVING.
func serveHealth(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	return server.Serve(listener)
}
