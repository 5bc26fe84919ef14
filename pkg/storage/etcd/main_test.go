package etcd_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"podium/pkg/storage"
	"podium/pkg/storage/etcd"
	"podium/test/freeport"
)

// bin is the path of our etcd command, which the first test that uses it builds.
var bin string

var built = sync.OnceValues(func() (string, error) {
	path := filepath.Join(bin, "etcd")
	out, err := exec.Command("go", "build", "-o", path, "podium/cmd/etcd").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build cmd/etcd: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	var err error
	if bin, err = os.MkdirTemp("", "podium-etcd"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(bin)
	os.Exit(code)
}

// server is an etcd process.
type server struct {
	t      *testing.T
	binary string
	args   []string
	url    string
	config etcd.Config // for clients of the server; set by newServer
	cmd    *exec.Cmd
	output *bytes.Buffer
}

// newServer starts an etcd on free ports, with its data in a directory of the test.
func newServer(t *testing.T, binary string, args ...string) *server {
	t.Helper()
	s := &server{t: t, binary: binary}
	client, peer := freeport.Address(t), freeport.Address(t)
	s.url = "http://" + client
	s.args = append([]string{
		"--name=test", "--data-dir=" + t.TempDir(),
		"--listen-client-urls=http://" + client, "--advertise-client-urls=http://" + client,
		"--listen-peer-urls=http://" + peer, "--initial-advertise-peer-urls=http://" + peer,
		"--initial-cluster=test=http://" + peer, "--log-level=warn", "--unsafe-no-fsync",
	}, args...)
	s.config = etcd.Config{Servers: []string{s.url}, Log: slog.New(slog.DiscardHandler)}
	t.Cleanup(s.stop)
	s.start()
	return s
}

func (s *server) start() {
	s.t.Helper()
	s.output = new(bytes.Buffer)
	s.cmd = exec.Command(s.binary, s.args...)
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		store, err := etcd.Open(ctx, s.config)
		if err == nil {
			_, err = store.Revision(ctx)
			store.Close()
		}
		cancel()
		if err == nil {
			return
		}
	}
	s.stop()
	s.t.Fatalf("%s does not answer:\n%s", s.binary, s.output)
}

func (s *server) stop() {
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Kill()
	s.cmd.Wait()
	s.cmd = nil
}

// ours starts the etcd command of this repository.
func ours(t *testing.T, args ...string) *server {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and starts cmd/etcd")
	}
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return newServer(t, path, args...)
}

func open(t *testing.T, url string) *etcd.Store {
	t.Helper()
	s, err := etcd.Open(context.Background(), etcd.Config{Servers: []string{url}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func embed(t testing.TB, dir string) *etcd.Store {
	t.Helper()
	s, err := etcd.Embed(context.Background(), etcd.EmbeddedConfig{Dir: dir, NoSync: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func only(s storage.Store) func(*testing.T) storage.Store {
	return func(*testing.T) storage.Store { return s }
}
