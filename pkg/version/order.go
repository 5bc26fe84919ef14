package version

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"
)

// Release is a version that can be compared with others.
type Release struct {
	Major, Minor, Patch uint
	Commits             uint64 // that went into the build; 0: unknown
}

// Parse reads what daemons call themselves. A version of somebody else's
// Kubernetes has no number of commits.
func Parse(text string) (Release, error) {
	v, err := utilversion.ParseSemantic(text)
	if err != nil {
		return Release{}, fmt.Errorf("%q is no version of Kubernetes: %w", text, err)
	}
	r := Release{Major: v.Major(), Minor: v.Minor(), Patch: v.Patch()}
	if parts := strings.Split(v.BuildMetadata(), "."); len(parts) == 3 && parts[0] == "podium" {
		r.Commits, _ = strconv.ParseUint(parts[1], 10, 64)
	}
	return r, nil
}

// Compare is negative when r is older than other, and positive when it is newer.
func (r Release) Compare(other Release) int {
	return cmp.Or(cmp.Compare(r.Major, other.Major), cmp.Compare(r.Minor, other.Minor), cmp.Compare(r.Patch, other.Patch), cmp.Compare(r.Commits, other.Commits))
}

// MinorsFrom is by how many minor versions r is newer than other.
func (r Release) MinorsFrom(other Release) int { return int(r.Minor) - int(other.Minor) }
