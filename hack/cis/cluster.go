package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// cluster is the cluster that the checks inspect.
type cluster struct {
	dir     string
	daemons map[string]*daemon
	plugins string // the admission plugins of the apiserver
}

// daemon is a running process: its flags, and the defaults of all flags.
type daemon struct {
	flags, defaults map[string]string
}

// open reads the pid files of the cluster's processes and their help texts.
func open(dir string) (*cluster, error) {
	full, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: full, daemons: map[string]*daemon{}}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"} {
		data, err := os.ReadFile(c.path("pids", name+".json"))
		if err != nil {
			return nil, fmt.Errorf("is there a cluster in %s? %w", full, err)
		}
		var record struct {
			PID  int      `json:"pid"`
			Args []string `json:"args"`
		}
		if err := json.Unmarshal(data, &record); err != nil {
			return nil, err
		}
		if err := syscall.Kill(record.PID, 0); err != nil {
			return nil, fmt.Errorf("%s does not run: %w", name, err)
		}
		help, err := exec.Command(record.Args[0], "--help").CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("ask %s for its flags: %w", name, err)
		}
		c.daemons[name] = &daemon{given(record.Args[1:]), defaults(string(help))}
		if name == "kube-apiserver" {
			c.plugins = plugins(record.Args[0])
		}
	}
	return c, nil
}

// plugins returns the names of the apiserver's admission plugins, which are in
// the error about an unknown plugin in --disable-admission-plugins. The
// apiserver exits before it does anything.
func plugins(binary string) string {
	out, _ := exec.Command(binary, "--data-dir=/dev/null", "--disable-admission-plugins=?").CombinedOutput()
	_, known, _ := strings.Cut(string(out), "known:")
	return known
}

func given(args []string) map[string]string {
	out := map[string]string{}
	for _, a := range args {
		name, value, ok := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if !ok {
			value = "true"
		}
		out[name] = value
	}
	return out
}

var helpLine = regexp.MustCompile(`(?m)^\s+(?:-\w, )?--([\w-]+)\s.*$`)
var helpDefault = regexp.MustCompile(`\(default (.*)\)$`)

// defaults parses the defaults in a help text; a flag without one has "".
func defaults(help string) map[string]string {
	out := map[string]string{}
	for _, m := range helpLine.FindAllStringSubmatch(help, -1) {
		value := ""
		if d := helpDefault.FindStringSubmatch(strings.TrimSpace(m[0])); d != nil {
			value = strings.Trim(d[1], `"[]`)
		}
		out[m[1]] = value
	}
	return out
}

func (c *cluster) path(parts ...string) string {
	return filepath.Join(append([]string{c.dir}, parts...)...)
}

// setting returns the value of a daemon's flag, or its default.
func (c *cluster) setting(of, flag string) string {
	if v, ok := c.daemons[of].flags[flag]; ok {
		return v
	}
	return c.daemons[of].defaults[flag]
}

// knows reports whether the daemon has a flag.
func (c *cluster) knows(of, flag string) bool {
	_, ok := c.daemons[of].defaults[flag]
	return ok
}

// apiserver returns the address of the apiserver.
func (c *cluster) apiserver() string {
	return net.JoinHostPort("127.0.0.1", c.setting("kube-apiserver", "secure-port"))
}

// kubelet returns the address of the kubelet's server.
func (c *cluster) kubelet() string {
	port := c.setting("kubelet", "port")
	if port == "" {
		port = "10250"
	}
	return net.JoinHostPort(c.setting("kubelet", "node-ip"), port)
}

// files returns the files that match a pattern below the cluster's directory,
// and those in directories that match.
func (c *cluster) files(pattern string) (map[string]fs.FileInfo, error) {
	tops, err := filepath.Glob(c.path(pattern))
	if err != nil || len(tops) == 0 {
		return nil, errors.Join(err, fmt.Errorf("there is no %s", pattern))
	}
	out := map[string]fs.FileInfo{}
	for _, top := range tops {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			out[path], err = d.Info()
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
