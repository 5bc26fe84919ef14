package etcd

import (
	"fmt"
	"strconv"
	"strings"
)

// version is an etcd server's release.
type version struct{ major, minor, patch int }

// oldest is the first release that is good enough: transactions, watches and
// their progress as the client speaks them.
var oldest = version{3, 4, 0}

// parseVersion reads "3.4.23" or "3.6.0-rc.1"; what follows a - or + is dropped.
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

// truthful says whether progress never runs ahead of the events: before these
// releases it could (https://github.com/etcd-io/etcd/issues/15220).
func (v version) truthful() bool {
	switch {
	case v.major == 3 && v.minor == 4:
		return v.patch >= 31
	case v.major == 3 && v.minor == 5:
		return v.patch >= 13
	}
	return !v.less(version{3, 6, 0})
}
