package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// HealthPorts serves the health check node ports, at which load balancers check
// whether this node has endpoints of a Service with externalTrafficPolicy Local.
type HealthPorts interface {
	// Set replaces the served ports and their responses.
	Set(map[int32]HealthAnswer)
}

// HealthAnswer is the response of one health check node port.
type HealthAnswer struct {
	Namespace, Service string
	LocalEndpoints     int
}

// HealthServers implements HealthPorts on this machine's addresses. Set Log and
// Healthy before the first call of Set.
type HealthServers struct {
	Log     *slog.Logger
	Healthy func() bool // whether the proxy itself is healthy

	mu      sync.Mutex
	servers map[int32]*healthServer
}

type healthServer struct {
	http *http.Server

	mu     sync.Mutex
	answer HealthAnswer
}

// Set implements HealthPorts.
func (h *HealthServers) Set(want map[int32]HealthAnswer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for port, s := range h.servers {
		if _, still := want[port]; !still {
			_ = s.http.Close()
			delete(h.servers, port)
		}
	}
	for port, answer := range want {
		s := h.servers[port]
		if s == nil {
			if s = h.start(port); s == nil {
				continue
			}
		}
		s.mu.Lock()
		s.answer = answer
		s.mu.Unlock()
	}
}

// start serves a port. It logs a failure and returns nil. h.mu is held.
func (h *HealthServers) start(port int32) *healthServer {
	l, err := net.Listen("tcp", ":"+strconv.Itoa(int(port)))
	if err != nil {
		h.Log.Error("serve health check node port failed", "port", port, "error", err)
		return nil
	}
	s := &healthServer{}
	s.http = &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { h.serve(w, s) }),
	}
	go func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			h.Log.Error("health check node port closed", "port", port, "error", err)
		}
	}()
	if h.servers == nil {
		h.servers = map[int32]*healthServer{}
	}
	h.servers[port] = s
	return s
}

func (h *HealthServers) serve(w http.ResponseWriter, s *healthServer) {
	s.mu.Lock()
	a := s.answer
	s.mu.Unlock()
	healthy := h.Healthy()
	body := struct {
		Service struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"service"`
		LocalEndpoints      int  `json:"localEndpoints"`
		ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
	}{LocalEndpoints: a.LocalEndpoints, ServiceProxyHealthy: healthy}
	body.Service.Namespace, body.Service.Name = a.Namespace, a.Service
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(a.LocalEndpoints))
	if a.LocalEndpoints == 0 || !healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(body)
}

// Run blocks until ctx ends and then closes all servers.
func (h *HealthServers) Run(ctx context.Context) error {
	<-ctx.Done()
	h.Set(nil)
	return nil
}
