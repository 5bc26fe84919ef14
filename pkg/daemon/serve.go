package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"

	"podium/pkg/client/revocation"
)

// ServeConfig configures Serve.
type ServeConfig struct {
	Address  string       // host:port, used when there is no Listener
	Listener net.Listener // closed by Serve
	TLS      *tls.Config  // nil: plain HTTP
	Handler  http.Handler
	Log      *slog.Logger
	// Connections tracks the connections with their client certificates, to close
	// them on a revocation; nil disables this.
	Connections *revocation.Connections

	// Grace is how long requests may take to finish after ctx has ended; default 5 s.
	// The requests' contexts end with ctx at once.
	Grace time.Duration
}

const (
	defaultGrace  = 5 * time.Second
	headerTimeout = 32 * time.Second
	idleTimeout   = 90 * time.Second
)

// Serve serves until ctx ends, waits for the requests in progress, and returns nil. It
// returns an error if it cannot serve.
func Serve(ctx context.Context, cfg ServeConfig) error {
	ln := cfg.Listener
	if ln == nil {
		var err error
		if ln, err = (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Address); err != nil {
			return fmt.Errorf("serve: %w", err)
		}
	}
	srv := &http.Server{
		Handler:           cfg.Handler,
		TLSConfig:         cfg.TLS,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          log.New(debugLog{cfg.Log}, "", 0),
	}
	if cfg.Connections != nil {
		ln, srv.ConnContext = cfg.Connections.Listener(ln), cfg.Connections.Context
	}
	served := make(chan error, 1)
	go func() {
		if cfg.TLS != nil {
			served <- srv.ServeTLS(ln, "", "")
		} else {
			served <- srv.Serve(ln)
		}
	}()
	select {
	case err := <-served:
		return fmt.Errorf("serve on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	grace := cfg.Grace
	if grace == 0 {
		grace = defaultGrace
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := srv.Shutdown(end); err != nil {
		err = srv.Close()
		if err != nil && !errors.Is(err, net.ErrClosed) {
			cfg.Log.Warn("close the listener", "error", err)
		}
	}
	<-served
	return nil
}

// debugLog logs net/http's messages about misbehaving clients at debug level.
type debugLog struct{ log *slog.Logger }

func (d debugLog) Write(line []byte) (int, error) {
	if d.log != nil {
		d.log.Debug(string(bytes.TrimSpace(line)))
	}
	return len(line), nil
}
