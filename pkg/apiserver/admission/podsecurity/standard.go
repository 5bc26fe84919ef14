package podsecurity

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
)

// Level is how strict a standard is; levels compare by strictness.
type Level int

// The levels.
const (
	Privileged Level = iota
	Baseline
	Restricted
)

func levelNames() []string { return []string{"privileged", "baseline", "restricted"} }

func (l Level) String() string { return levelNames()[l] }

// ParseLevel reads a level's name. What is none counts as Restricted.
func ParseLevel(text string) (Level, error) {
	if i := slices.Index(levelNames(), text); i >= 0 {
		return Level(i), nil
	}
	return Restricted, errors.New("must be one of privileged, baseline, restricted")
}

// Version says of which Kubernetes the standard is.
type Version struct {
	pinned bool
	minor  int
}

// Latest is the newest standard there is.
func Latest() Version { return Version{} }

// Minor is the standard as it was at v1.minor.
func Minor(minor int) Version { return Version{true, minor} }

func (v Version) String() string {
	if !v.pinned {
		return "latest"
	}
	return fmt.Sprintf("v1.%d", v.minor)
}

// has says whether what came with a minor version counts.
func (v Version) has(minor int) bool { return !v.pinned || v.minor >= minor }

var versionFormat = regexp.MustCompile(`^v1\.(0|[1-9][0-9]*)$`)

// ParseVersion reads "latest" or "v1.N". What is neither counts as Latest.
func ParseVersion(text string) (Version, error) {
	if text == "latest" {
		return Latest(), nil
	}
	if m := versionFormat.FindStringSubmatch(text); m != nil {
		if minor, err := strconv.Atoi(m[1]); err == nil {
			return Minor(minor), nil
		}
	}
	return Latest(), errors.New(`must be "latest" or "v1.x"`)
}

// Standard is a level as it was at a version.
type Standard struct {
	Level   Level
	Version Version
}

func (s Standard) String() string { return s.Level.String() + ":" + s.Version.String() }

// same says that both ask for the same: a privileged standard asks for nothing
// at any version.
func (s Standard) same(o Standard) bool {
	return s == o || s.Level == Privileged && o.Level == Privileged
}
