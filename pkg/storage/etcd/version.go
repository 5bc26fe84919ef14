package etcd

import (
	"fmt"
	"strconv"
	"strings"
)

// version is the release of an etcd server.
type version struct{ major, minor, patch int }

// oldest is the first supported release: its transactions, watches and progress
// notifications are those that the client uses.
var oldest = version{3, 4, 0}

// parseVersion parses "3.4.23" or "3.6.0-rc.1"; it ignores what follows a - or +.
func parseVersion(text string) (version, error) {
	core, _, _ := strings.Cut(text, "+")
	core, _, _ = strings.Cut(core, "-")
	parts := strings.Split(core, ".")
	if len(parts) != 3 {
		return version{}, fmt.Errorf("version %q is not three numbers", text)
	}
	var n [3]int
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 10, 31)
		if err != nil {
			return version{}, fmt.Errorf("version %q is not three numbers", text)
		}
		n[i] = int(v)
	}
	return version{n[0], n[1], n[2]}, nil
}

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v.major, v.minor, v.patch) }

func (v version) less(w version) bool {
	if v.major != w.major {
		return v.major < w.major
	}
	if v.minor != w.minor {
		return v.minor < w.minor
	}
	return v.patch < w.patch
}

// truthful reports whether progress notifications never precede the events they
// cover. Before these releases they could
// (https://github.com/etcd-io/etcd/issues/15220).
func (v version) truthful() bool {
	switch {
	case v.major == 3 && v.minor == 4:
		return v.patch >= 31
	case v.major == 3 && v.minor == 5:
		return v.patch >= 13
	}
	return !v.less(version{3, 6, 0})
}
