package arguments

import (
	"os/exec"
	"testing"
	"time"
)

func TestWhatIsAmongArgumentsIsSeen(t *testing.T) {
	w := Start()
	cmd := exec.CommandContext(t.Context(), "sleep", "31.4159")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for begin := w.looks.Load(); w.looks.Load() < begin+2; {
		time.Sleep(often)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if got := w.With("31.4159"); len(got) != 1 || got[0] != "sleep 31.4159" {
		t.Errorf("seen: %q", got)
	}
	if got := w.With("nobody has this"); len(got) != 0 {
		t.Errorf("seen: %q", got)
	}
}
