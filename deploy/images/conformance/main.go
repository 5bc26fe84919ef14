// The image of the conformance tests. Its entrypoint is "/conformance print"
// and its command "default"; the binary is setuid root.
//
//	conformance print WORD...   print the words
//	conformance euid            print the effective user id
//	conformance grpc ADDRESS    serve gRPC health checks
package main

import (
	"fmt"
	"log"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: conformance print|euid|grpc [ARGUMENT...]")
	}
	switch args := os.Args[2:]; os.Args[1] {
	case "print":
		fmt.Println(strings.Join(args, " "))
	case "euid":
		fmt.Println(os.Geteuid())
	case "grpc":
		log.Fatal(serveHealth(args[0]))
	default:
		log.Fatalf("unknown command %q", os.Args[1])
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
