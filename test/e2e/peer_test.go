package e2e

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// peer is a process of a foreign program that hack/peers builds.
type peer struct {
	t     *testing.T
	args  []string
	log   *os.File
	cmd   *exec.Cmd
	stdin io.Writer
}

// startPeer starts a program; if the test fails, it shows the end of what the program says.
func startPeer(t *testing.T, name string, args ...string) *peer {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, log: log, args: append([]string{the.bin("peers/" + name)}, args...)}
	p.start()
	t.Cleanup(func() {
		p.end()
		if t.Failed() {
			text := p.says()
			t.Logf("%s says\n%s", name, text[max(0, len(text)-4000):])
		}
		log.Close()
	})
	return p
}

func (p *peer) start() {
	p.t.Helper()
	p.cmd = exec.Command(p.args[0], p.args[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	p.stdin = stdin
	if err := p.cmd.Start(); err != nil {
		p.t.Fatalf("%v: hack/peers builds it", err)
	}
}

func (p *peer) end() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // it was killed
}

// says returns what all processes have printed.
func (p *peer) says() string {
	p.t.Helper()
	text, err := os.ReadFile(p.log.Name())
	if err != nil {
		p.t.Error(err)
	}
	return string(text)
}
