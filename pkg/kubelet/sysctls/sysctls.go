package sysctls

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// namespace is the kernel namespace that a sysctl belongs to, as in upstream's
// messages.
type namespace string

const (
	unknown namespace = ""
	ipc     namespace = "IPC"
	network namespace = "Net"
)

// safe returns the sysctls that affect only the pod, with the first kernel version
// that namespaces them.
func safe() map[string]kernel {
	return map[string]kernel{
		"kernel.shm_rmid_forced":              {},
		"net.ipv4.ip_local_port_range":        {},
		"net.ipv4.tcp_syncookies":             {},
		"net.ipv4.ping_group_range":           {},
		"net.ipv4.ip_unprivileged_port_start": {},
		"net.ipv4.ip_local_reserved_ports":    {3, 16},
		"net.ipv4.tcp_keepalive_time":         {4, 5},
		"net.ipv4.tcp_fin_timeout":            {4, 6},
		"net.ipv4.tcp_keepalive_intvl":        {4, 5},
		"net.ipv4.tcp_keepalive_probes":       {4, 5},
		"net.ipv4.tcp_rmem":                   {4, 15},
		"net.ipv4.tcp_wmem":                   {4, 15},
	}
}

// kernel is a major and minor version.
type kernel [2]int

func (k kernel) less(o kernel) bool { return slices.Compare(k[:], o[:]) < 0 }

var kernelFormat = regexp.MustCompile(`^(\d{1,6})\.(\d{1,6})`)

// parseKernel parses a release such as "6.1.0-13-amd64". An invalid one is {0, 0}.
func parseKernel(release string) kernel {
	m := kernelFormat.FindStringSubmatch(release)
	if m == nil {
		return kernel{}
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	return kernel{major, minor}
}

// Allowed is the set of sysctls that pods of this node may set. A nil *Allowed
// allows none.
type Allowed struct {
	names    map[string]namespace
	prefixes map[string]namespace
}

const maxName = 253

var pattern = regexp.MustCompile(`^([a-z0-9*]([-_a-z0-9*]*[a-z0-9*])?[./])*[a-z0-9*]([-_a-z0-9*]*[a-z0-9*])?$`)

// New returns the sysctls that are safe with the kernel release, and those in more: names,
// or patterns that end with *.
func New(release string, more []string) (*Allowed, error) {
	a := &Allowed{names: map[string]namespace{}, prefixes: map[string]namespace{}}
	have := parseKernel(release)
	for name, since := range safe() {
		if !have.less(since) {
			a.names[name] = namespaceOf(name)
		}
	}
	var errs []error
	for _, text := range more {
		errs = append(errs, a.add(text))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *Allowed) add(text string) error {
	prefix, isPattern := strings.CutSuffix(text, "*")
	if len(text) > maxName || !pattern.MatchString(text) || strings.Contains(prefix, "*") {
		return fmt.Errorf("sysctl %q must have at most %d characters and be a name, or a name's beginning and *", text, maxName)
	}
	name := Name(prefix)
	ns := namespaceOf(name)
	if ns == unknown {
		return fmt.Errorf("the sysctls %q are not known to be namespaced", name)
	}
	if isPattern {
		a.prefixes[name] = ns
	} else {
		a.names[name] = ns
	}
	return nil
}

// namespaceOf returns unknown for a sysctl that is not namespaced.
func namespaceOf(name string) namespace {
	switch name {
	case "kernel.sem", "kernel.shm", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
		"kernel.msg", "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni":
		return ipc
	}
	switch {
	case strings.HasPrefix(name, "net."):
		return network
	case strings.HasPrefix(name, "fs.mqueue."):
		return ipc
	}
	return unknown
}

// Name returns a sysctl's name with dots as separators. In net/ipv4/conf/eth0.1 the
// dot belongs to an element and becomes a slash.
func Name(text string) string {
	if i := strings.IndexAny(text, "./"); i < 0 || text[i] == '.' {
		return text
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '/':
			return '.'
		case '.':
			return '/'
		}
		return r
	}, text)
}

// Check returns an error with upstream's text if the pod sets a sysctl that it may
// not set. a may be nil.
func (a *Allowed) Check(pod *corev1.Pod) error {
	s := pod.Spec.SecurityContext
	if s == nil {
		return nil
	}
	for _, ctl := range s.Sysctls {
		name := Name(ctl.Name)
		switch ns := a.find(name); {
		case ns == unknown:
			return fmt.Errorf("forbidden sysctl: %q not allowlisted", name)
		case ns == ipc && pod.Spec.HostIPC, ns == network && pod.Spec.HostNetwork:
			return fmt.Errorf("forbidden sysctl: %q not allowed with host %s enabled", name, ns)
		}
	}
	return nil
}

func (a *Allowed) find(name string) namespace {
	if a == nil {
		return unknown
	}
	if ns, ok := a.names[name]; ok {
		return ns
	}
	for prefix, ns := range a.prefixes {
		if strings.HasPrefix(name, prefix) {
			return ns
		}
	}
	return unknown
}
