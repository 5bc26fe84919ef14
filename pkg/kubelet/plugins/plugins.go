// Package plugins registers the plugins of a node. A plugin serves upstream's
// registration API (pluginregistration v1) on a socket in <root>/plugins_registry. The
// watcher asks it for its type and name, tells the handler of that type, and answers the
// plugin whether it is registered. A plugin whose socket is removed is deregistered; one
// whose socket is replaced is registered again.
package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"podium/pkg/backoff"
)

// The types of plugins.
const (
	CSI    = registration.CSIPlugin    // CSI drivers
	Device = registration.DevicePlugin // device plugins
	DRA    = registration.DRAPlugin    // drivers of dynamic resource allocation
)

// Plugin is what a plugin says about itself.
type Plugin struct {
	Name     string
	Endpoint string   // the socket of its service
	Versions []string // of the API that it serves
	Socket   string   // where it registered: it tells two plugins with one name apart
}

// Handler knows the plugins of one type. It must be safe for concurrent use.
type Handler interface {
	// Register makes a plugin known. It may block until ctx ends, and is called again
	// after an error.
	Register(ctx context.Context, p Plugin) error
	// Deregister forgets a plugin. It is called again after an error.
	Deregister(ctx context.Context, p Plugin) error
}

// Watcher registers plugins.
type Watcher struct {
	Dir      string             // created if it does not exist
	Handlers map[string]Handler // by type of plugin
	Dialer   Dialer
	Log      *slog.Logger
}

const (
	scanPeriod  = time.Second
	callTimeout = 10 * time.Second // of one registration call
	firstRetry  = 500 * time.Millisecond
	lastRetry   = 2 * time.Minute
)

// errGone ends the registration of a plugin whose socket was removed or replaced.
var errGone = errors.New("the plugin's socket is gone")

// file identifies a socket: a plugin that restarts makes a new one.
type file struct {
	dev, ino uint64
	changed  syscall.Timespec
}

// registered is the registration of the plugin behind one socket.
type registered struct {
	file file
	end  context.CancelCauseFunc
	done chan struct{}
}

// Run registers plugins until ctx ends. It does not deregister them then: their volumes
// stay in use.
func (w *Watcher) Run(ctx context.Context) error {
	if err := os.MkdirAll(w.Dir, 0o750); err != nil {
		return fmt.Errorf("plugin registration: %w", err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	known := map[string]*registered{} // by path
	for ctx.Err() == nil {
		found := sockets(w.Dir)
		endGone(known, found)
		for path, f := range found {
			before := known[path]
			if before != nil && before.file == f {
				continue
			}
			own, end := context.WithCancelCause(ctx)
			r := &registered{file: f, end: end, done: make(chan struct{})}
			known[path] = r
			running.Go(func() {
				defer close(r.done)
				if before != nil {
					<-before.done
				}
				w.serve(ctx, own, path)
			})
		}
		_ = backoff.Sleep(ctx, scanPeriod)
	}
	return nil
}

// endGone ends the registrations whose sockets were removed or replaced. It forgets those
// that have ended, so that a new one never runs beside an old one.
func endGone(known map[string]*registered, found map[string]file) {
	for path, r := range known {
		if f, ok := found[path]; !ok || f != r.file {
			r.end(errGone)
			select {
			case <-r.done:
				delete(known, path)
			default:
			}
		}
	}
}

// sockets returns the sockets in and below dir, without hidden ones.
func sockets(dir string) map[string]file {
	found := map[string]file{}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil: // removed meanwhile
			return nil
		case path != dir && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.Type() != fs.ModeSocket:
			return nil
		}
		if info, err := d.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				found[path] = file{st.Dev, st.Ino, st.Ctim}
			}
		}
		return nil
	})
	return found
}

// serve keeps the plugin behind a socket registered until own ends, then deregisters it if
// its socket is gone. It retries both with back-off.
func (w *Watcher) serve(ctx, own context.Context, path string) {
	log := w.Log.With("socket", path)
	plugin, handler, ok := w.keepTrying(own, path, log)
	if !ok {
		return
	}
	<-own.Done()
	retry := backoff.Backoff{Initial: firstRetry, Max: lastRetry}
	for ctx.Err() == nil && errors.Is(context.Cause(own), errGone) {
		err := handler.Deregister(ctx, plugin)
		if err == nil {
			log.Info("plugin deregistered", "name", plugin.Name)
			return
		}
		log.Warn("deregister plugin failed", "name", plugin.Name, "error", err)
		_ = retry.Wait(ctx)
	}
}

// keepTrying registers a plugin. ok is false if ctx ended first.
func (w *Watcher) keepTrying(ctx context.Context, path string, log *slog.Logger) (p Plugin, h Handler, ok bool) {
	retry := backoff.Backoff{Initial: firstRetry, Max: lastRetry}
	for ctx.Err() == nil {
		p, h, err := w.register(ctx, path)
		if err == nil {
			log.Info("plugin registered", "name", p.Name, "endpoint", p.Endpoint)
			return p, h, true
		}
		if ctx.Err() == nil {
			log.Warn("register plugin failed", "error", err)
		}
		_ = retry.Wait(ctx)
	}
	return Plugin{}, nil, false
}

// register asks a plugin what it is, tells its handler and answers the plugin.
func (w *Watcher) register(ctx context.Context, path string) (Plugin, Handler, error) {
	conn, err := w.Dialer.Dial(path)
	if err != nil {
		return Plugin{}, nil, err
	}
	defer conn.Close()
	client := registration.NewRegistrationClient(conn)
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := client.GetInfo(call, &registration.InfoRequest{})
	if err != nil {
		return Plugin{}, nil, fmt.Errorf("GetInfo: %w", err)
	}
	p := Plugin{Name: info.Name, Endpoint: info.Endpoint, Versions: slices.Clone(info.SupportedVersions), Socket: path}
	if p.Endpoint == "" {
		p.Endpoint = path
	}
	handler := w.Handlers[info.Type]
	if handler == nil {
		err = fmt.Errorf("no handler registered for plugin type: %s at socket %s", info.Type, path)
	} else {
		err = handler.Register(ctx, p)
	}
	status := &registration.RegistrationStatus{PluginRegistered: err == nil}
	if err != nil {
		status.Error = fmt.Sprintf("RegisterPlugin error -- plugin registration failed with err: %v", err)
	}
	answer, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, notify := client.NotifyRegistrationStatus(answer, status); notify != nil && err == nil {
		err = fmt.Errorf("NotifyRegistrationStatus: %w", notify)
	}
	return p, handler, err
}

// Dialer connects to a plugin's socket; nil: to the Unix socket of that path.
type Dialer func(ctx context.Context, path string) (net.Conn, error)

// Dial returns a connection to a plugin's Unix socket. It does not block: calls connect.
func Dial(path string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	return Dialer(nil).Dial(path, options...)
}

// Dial returns a connection to a plugin's socket. It does not block: calls connect.
func (d Dialer) Dial(path string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	if d == nil {
		d = func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
	}
	return grpc.NewClient("passthrough:///"+strings.TrimPrefix(path, "unix://"), append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"), grpc.WithContextDialer(d),
	)...)
}
