package e2e

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// hungFS is a file system with an empty root directory that stops answering, as a network
// file system does whose server is gone: from then on everything that uses it blocks, until
// it is killed.
type hungFS struct {
	dir     string
	hanging chan struct{} // closed to stop the answers
	stopped chan struct{} // closed when there are no more
	ended   sync.Once
}

// mountHungFS mounts the file system until the end of the test.
func mountHungFS(t *testing.T) *hungFS {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open /dev/fuse: %v", err)
	}
	f := &hungFS{dir: t.TempDir(), hanging: make(chan struct{}), stopped: make(chan struct{})}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	if err := unix.Mount("hungfs", f.dir, "fuse.hungfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Fatalf("mount: %v", err)
	}
	go func() {
		defer close(f.stopped)
		f.answer(fd)
	}()
	t.Cleanup(func() {
		f.end(t)
		<-f.stopped
		_ = unix.Close(fd)
	})
	return f
}

// end unmounts the file system. What blocks on it fails from now on, in all namespaces.
func (f *hungFS) end(t *testing.T) {
	t.Helper()
	f.ended.Do(func() {
		if err := unix.Unmount(f.dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
}

// The requests that the file system answers, from the kernel's fuse.h.
const (
	fuseGetAttr  = 3
	fuseInit     = 26
	fuseHeader   = 40 // bytes before a request
	fuseOut      = 16 // bytes before an answer
	fuseMaxWrite = 128 << 10
)

// answer serves requests until the file system is to hang or is unmounted. It leaves no
// request without an answer that it has read: those could not even be killed.
func (f *hungFS) answer(fd int) {
	buf := make([]byte, fuseMaxWrite+4096)
	for {
		select {
		case <-f.hanging:
			return
		default:
		}
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(ready, 50); n == 0 || err == unix.EINTR {
			continue
		}
		n, err := unix.Read(fd, buf)
		switch {
		case err == unix.EINTR || err == unix.ENOENT: // a request was interrupted
			continue
		case err != nil || n < fuseHeader:
			return
		}
		opcode, unique := binary.LittleEndian.Uint32(buf[4:]), binary.LittleEndian.Uint64(buf[8:])
		var body []byte
		errno := unix.Errno(0)
		switch opcode {
		case fuseInit:
			body = make([]byte, 64)
			binary.LittleEndian.PutUint32(body, 7)
			binary.LittleEndian.PutUint32(body[4:], 31)
			binary.LittleEndian.PutUint32(body[20:], fuseMaxWrite)
		case fuseGetAttr: // of the root: attributes that the kernel asks for again each time
			body = make([]byte, 104)
			binary.LittleEndian.PutUint64(body[16:], 1)
			binary.LittleEndian.PutUint32(body[76:], unix.S_IFDIR|0o755)
			binary.LittleEndian.PutUint32(body[80:], 2)
		default:
			errno = unix.ENOSYS
		}
		out := make([]byte, fuseOut, fuseOut+len(body))
		binary.LittleEndian.PutUint32(out, uint32(fuseOut+len(body)))
		binary.LittleEndian.PutUint32(out[4:], uint32(-int32(errno)))
		binary.LittleEndian.PutUint64(out[8:], unique)
		if _, err := unix.Write(fd, append(out, body...)); err != nil && err != unix.ENOENT {
			return
		}
	}
}

// hang stops the answers.
func (f *hungFS) hang() {
	close(f.hanging)
	<-f.stopped
}
