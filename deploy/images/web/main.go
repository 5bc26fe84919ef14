// The web image: a small HTTP server that answers with the name of its pod.
//
//	GET /          the pod's name
//	GET /healthz   200, or 503 after POST /fail (until POST /heal)
//	GET /slow      the pod's name after a second
//	GET /client    the address that asks
//	POST /exit     the process ends with code 1
//
// On SIGTERM it finishes the requests it has, then ends.
//
// As `web fetch PATH` it asks the cluster's API for a path instead, as its
// service account, and prints the answer; as `web get URL` any other server.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	do := run
	if len(os.Args) == 3 {
		switch os.Args[1] {
		case "fetch":
			do = fetch
		case "get":
			do = get
		}
	}
	if err := do(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	address := ":8080"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the pod's name: %w", err)
	}
	server := &http.Server{Addr: address, Handler: handler(name), ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() {
		<-ctx.Done()
		drain, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		done <- server.Shutdown(drain)
	}()
	log.Printf("%s serves on %s", name, address)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-done
}

func handler(name string) http.Handler {
	var failing atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, name) })
	mux.HandleFunc("GET /client", func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr) // the server has made it
		fmt.Fprintln(w, host)
	})
	mux.HandleFunc("GET /slow", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(time.Second):
			fmt.Fprintln(w, name)
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if failing.Load() {
			http.Error(w, "failing", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("POST /fail", func(http.ResponseWriter, *http.Request) { failing.Store(true) })
	mux.HandleFunc("POST /heal", func(http.ResponseWriter, *http.Request) { failing.Store(false) })
	mux.HandleFunc("POST /exit", func(http.ResponseWriter, *http.Request) { os.Exit(1) })
	return mux
}
