package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// traces is what identifies remains of the deleted cluster.
type traces struct {
	marks      []string // texts in the command lines, mounts and files of the cluster: its folders
	containers []string // ids in the runtime at the end
	network    []string // interfaces, addresses, routes and rules before the cluster was created
}

// traces returns the traces of a cluster that is about to be deleted; network is the
// networkState before it was created.
func (c *cluster) traces(ctx context.Context, network []string) (traces, error) {
	t := traces{marks: []string{c.dir, filepath.Dir(c.socket())}, network: network}
	conn, err := grpc.NewClient("unix://"+c.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return t, err
	}
	defer conn.Close()
	runtime := cri.NewRuntimeServiceClient(conn)
	boxes, err := runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return t, err
	}
	for _, b := range boxes.Items {
		t.containers = append(t.containers, b.Id)
	}
	containers, err := runtime.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return t, err
	}
	for _, c := range containers.Containers {
		t.containers = append(t.containers, c.Id)
	}
	return t, nil
}

// left returns an error for everything that is left of the cluster on this machine.
func (t traces) left() error {
	var errs []error
	found := func(format string, args ...any) { errs = append(errs, fmt.Errorf("left behind: "+format, args...)) }
	for _, look := range []func(func(string, ...any)) error{t.processes, t.mounts, t.cgroups, t.files, t.networkLeft} {
		errs = append(errs, look(found))
	}
	return errors.Join(errs...)
}

// ours reports whether a text contains a mark of the cluster.
func (t traces) ours(text string) bool {
	return slices.ContainsFunc(t.marks, func(mark string) bool { return strings.Contains(text, mark) })
}

func (t traces) id() string { return filepath.Base(t.marks[1]) }

// processes checks the command lines and the cgroups of all live processes.
func (t traces) processes(found func(string, ...any)) error {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if pid == os.Getpid() || !alive(pid) {
			continue
		}
		args, _ := os.ReadFile(dir + "/cmdline") // it may have ended meanwhile
		groups, _ := os.ReadFile(dir + "/cgroup")
		command := string(bytes.ReplaceAll(args, []byte{0}, []byte{' '}))
		if t.ours(command) || strings.Contains(string(groups), t.id()) {
			found("process %d: %s", pid, command)
		}
	}
	return err
}

// alive reports whether a process exists and is not a zombie, which the machine's first process
// must reap.
func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	state := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))[0]
	return state != "Z" && state != "X"
}

func (t traces) mounts(found func(string, ...any)) error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	for _, line := range strings.Split(string(data), "\n") {
		if t.ours(line) {
			found("mount %s", line)
		}
	}
	return err
}

func (t traces) cgroups(found func(string, ...any)) error {
	return filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.Contains(d.Name(), t.id()) {
			found("cgroup %s", path)
			return fs.SkipDir
		}
		return nil // cgroups come and go
	})
}

// files checks the cluster's folders, and the files that containerd and CNI keep elsewhere.
func (t traces) files(found func(string, ...any)) error {
	paths := t.marks
	for _, id := range t.containers {
		paths = append(paths, "/run/containerd/runc/k8s.io/"+id)
	}
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			found("%s", path)
		}
	}
	return filepath.WalkDir("/var/lib/cni", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // there need not be any
		}
		if data, err := os.ReadFile(path); err == nil && t.ours(string(data)) {
			found("%s", path)
		}
		return nil
	})
}

func (t traces) networkLeft(found func(string, ...any)) error {
	now, err := networkState()
	for _, line := range now {
		if !slices.Contains(t.network, line) {
			found("in the network: %s", line)
		}
	}
	return err
}

// networkState returns a line for each interface, address, route, chain and rule of this
// network namespace.
func networkState() (lines []string, err error) {
	for _, show := range []string{
		"ip -o link show", "ip -o addr show", "ip -o route show table all", "ip -o rule show", "ip -o neigh show nud permanent",
		"iptables-save", "ip6tables-save",
	} {
		args := strings.Fields(show)
		out, err := exec.Command(args[0], args[1:]...).Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", show, err)
		}
		for _, line := range strings.Split(string(out), "\n") {
			builtin := strings.HasPrefix(line, ":") && !strings.Contains(line, " - ")
			late := strings.HasPrefix(line, "multicast ff00::/8 dev ") // the kernel adds it some time after an interface is up
			if line == "" || builtin || late || strings.ContainsAny(line[:1], "#*") || line == "COMMIT" {
				continue
			}
			lines = append(lines, show+": "+line)
		}
	}
	return lines, nil
}
