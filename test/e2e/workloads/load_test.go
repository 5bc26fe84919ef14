package workloads

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"

	"podium/test/e2e/docked"
	"podium/test/e2e/traffic"
)

// load sends requests to a Service by the port of each node.
type load struct {
	traffic.Load
	stop func() // returns when the last request has been answered
}

// startLoad sends so many requests at a time by each node until the test ends, or stop is called.
func startLoad(s *docked.Space, service string, each int) *load {
	s.T.Helper()
	l := &load{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.T.Context()))
	var running sync.WaitGroup
	port := strconv.Itoa(s.NodePort(service))
	for _, node := range append([]string{plane}, workers...) {
		url := "http://" + net.JoinHostPort(s.Address(node), port) + "/"
		for range each {
			running.Go(func() { l.Run(ctx, url) })
		}
	}
	l.stop = func() {
		cancel()
		running.Wait()
	}
	s.T.Cleanup(l.stop)
	return l
}

// lostNone ends the load and fails the test if a request has failed.
func (l *load) lostNone(t *testing.T) {
	t.Helper()
	l.stop()
	requests, slowest, err := l.Result()
	t.Logf("%d requests, the slowest took %v", requests, slowest)
	if err != nil || requests == 0 {
		_, failed := l.Counts()
		t.Errorf("%d of %d requests failed, such as %.2000s", failed, requests, fmt.Sprint(err))
	}
}
