package security

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// peak is the peak of the API server's anonymous memory in bytes. What it maps of files is left out:
// that is the database of the embedded etcd, which grows with every write until it is compacted,
// and which the kernel can drop.
var peak atomic.Int64

// followMemory measures the API server's memory for as long as the tests run.
func followMemory() {
	for ; ; time.Sleep(100 * time.Millisecond) {
		if dir, err := apiserverProcess(); err == nil {
			for now, err := residentOwn(dir); err == nil; now, err = residentOwn(dir) {
				peak.Store(max(peak.Load(), now))
				time.Sleep(100 * time.Millisecond)
			}
		}
	}
}

// apiserverProcess returns the directory in /proc of the cluster's API server.
func apiserverProcess() (string, error) {
	own, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return "", err
	}
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return "", err
	}
	for _, file := range names {
		name, err := os.ReadFile(file)
		dir := filepath.Dir(file)
		if network, _ := os.Readlink(dir + "/ns/net"); err == nil && string(name) == "kube-apiserver\n" && network == own {
			return dir, nil
		}
	}
	return "", fmt.Errorf("the cluster's API server does not run here")
}

// residentOwn returns a process's memory that is not mapped of files, in bytes.
func residentOwn(dir string) (int64, error) {
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(status), "RssAnon:")
	size, _, _ := strings.Cut(strings.TrimSpace(after), " ")
	kilobytes, err := strconv.ParseInt(size, 10, 64)
	return kilobytes << 10, err
}

// memoryPeak returns the peak of the API server's memory since the tests began.
func memoryPeak(t *testing.T) int64 {
	t.Helper()
	if peak.Load() == 0 {
		_, err := apiserverProcess()
		t.Fatalf("the memory of the API server is not known: %v", err)
	}
	return peak.Load()
}

// memoryLimit returns the memory at which the kernel kills the API server (MemoryMax in its unit), in
// bytes: its soft limit is nine tenths of it.
func memoryLimit(t *testing.T) int64 {
	t.Helper()
	dir, err := apiserverProcess()
	check(t, err)
	environ, err := os.ReadFile(dir + "/environ")
	check(t, err)
	for entry := range strings.SplitSeq(string(environ), "\x00") {
		if value, ok := strings.CutPrefix(entry, "GOMEMLIMIT="); ok {
			limit, err := strconv.ParseInt(value, 10, 64)
			check(t, err)
			return limit / 9 * 10
		}
	}
	t.Fatal("the API server has no GOMEMLIMIT")
	return 0
}
