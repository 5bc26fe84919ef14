package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// identityFile is the name of the file that holds a replica's identity.
const identityFile = "leader-identity"

// maxIdentity is the maximum size of an identity in bytes: a host name and a UUID.
const maxIdentity = 512

// newIdentity returns the identity of a new replica, in upstream's form.
func newIdentity() string { return hostPrefix() + uuid.NewString() }

// hostPrefix is what all identities of this host begin with.
func hostPrefix() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "_"
}

// keptIdentity returns the identity in dir, and the lock on it. A process
// that replaces one that was killed thus has its identity, and its Lease, without a wait until
// the Lease expires. It fails if a process with that identity is alive: the kernel releases the
// lock only when that one is dead. The caller closes the lock when it no longer uses the identity.
func keptIdentity(dir string) (identity string, lock io.Closer, err error) {
	file, err := os.OpenFile(filepath.Join(dir, identityFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", nil, fmt.Errorf("keep the leader's identity: %w", err)
	}
	if identity, err = lockedIdentity(file); err != nil {
		return "", nil, errors.Join(fmt.Errorf("keep the leader's identity in %s: %w", file.Name(), err), file.Close())
	}
	return identity, file, nil
}

// lockedIdentity locks the file, and returns the identity in it. It writes a new one if there is none.
func lockedIdentity(file *os.File) (string, error) {
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return "", fmt.Errorf("a process with this identity is alive: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxIdentity+1))
	if err != nil {
		return "", err
	}
	// A killed process may have written a part only; the host may have another name now.
	have := strings.TrimSpace(string(text))
	if id, ok := strings.CutPrefix(have, hostPrefix()); ok && uuid.Validate(id) == nil {
		return have, nil
	}
	fresh := newIdentity()
	if err := file.Truncate(0); err != nil {
		return "", err
	}
	_, err = file.WriteAt([]byte(fresh+"\n"), 0)
	return fresh, err
}
