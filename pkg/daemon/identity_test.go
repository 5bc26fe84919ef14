package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The process after a dead one has its identity; one beside a living one has another.
func TestIdentityIsKept(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	e := Election{Dir: dir}
	first, lock := e.identity(log)
	beside, other := e.identity(log)
	if beside == first {
		t.Errorf("two living processes have the identity %s", first)
	}
	other.Close()
	lock.Close() // as the kernel does for a process that is killed
	second, lock := e.identity(log)
	if second != first {
		t.Errorf("the identity was %s and is %s", first, second)
	}
	lock.Close()
}

// What is not an identity of this host is replaced.
func TestIdentityThatIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), identityFile)
	for name, text := range map[string]string{
		"Empty": "", "Part": "host_1234", "OtherHost": "other_9e107d9d-0000-4000-8000-000000000000\n", "Long": strings.Repeat("x", 1<<20), "Binary": "\x00\xff\n_",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		identity, lock, err := keptIdentity(filepath.Dir(path))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		lock.Close()
		now, err := os.ReadFile(path)
		host, _ := os.Hostname()
		if err != nil || string(now) != identity+"\n" || !strings.HasPrefix(identity, host+"_") {
			t.Errorf("%s: identity %q, in the file %q, %v", name, identity, now, err)
		}
	}
	if _, _, err := keptIdentity(filepath.Join(filepath.Dir(path), "none")); err == nil {
		t.Error("a directory that does not exist keeps an identity")
	}
}
