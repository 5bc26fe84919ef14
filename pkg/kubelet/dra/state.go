package dra

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/checkpoint"
)

const (
	stateFile    = "dra_manager_state" // upstream's name
	stateVersion = 1
)

// device is a device that a driver has prepared for a claim.
type device struct {
	Pool     string   `json:"pool"`
	Name     string   `json:"name"`
	Share    string   `json:"share,omitempty"`
	Requests []string `json:"requests,omitempty"` // of the claim, with their sub-requests; none: all
	CDI      []string `json:"cdi,omitempty"`      // ids
}

// serves reports whether the device was allocated for a request of the claim, which may
// be an alternative "request/sub-request". An empty request stands for all.
func (d *device) serves(request string) bool {
	return request == "" || len(d.Requests) == 0 || slices.ContainsFunc(d.Requests, func(r string) bool {
		return r == request || strings.HasPrefix(r, request+"/")
	})
}

// part is what one driver does for a claim.
type part struct {
	Called   bool     `json:"called,omitempty"`   // the driver may have prepared it
	Prepared bool     `json:"prepared,omitempty"` // it has answered
	Devices  []device `json:"devices,omitempty"`

	fresh bool // it has answered this process
}

// claim is a resource claim that pods of the node use.
type claim struct {
	UID       types.UID        `json:"uid"`
	Namespace string           `json:"namespace"`
	Name      string           `json:"name"`
	Allocated []string         `json:"allocated,omitempty"` // the devices, sorted
	Pods      []types.UID      `json:"pods"`                // that use it
	Drivers   map[string]*part `json:"drivers,omitempty"`   // by name
}

func (c *claim) usedBy(pod types.UID) bool { return slices.Contains(c.Pods, pod) }

// prepared reports whether all drivers have prepared the claim.
func (c *claim) prepared() bool {
	for _, p := range c.Drivers {
		if !p.Prepared {
			return false
		}
	}
	return true
}

// content is what the state file holds.
type content struct {
	Version int      `json:"version"`
	Claims  []*claim `json:"claims"`
}

// readState reads the claims in use from a file. It returns none if the file does not
// exist.
func readState(path string) (map[types.UID]*claim, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[types.UID]*claim{}, nil
	}
	if err != nil {
		return nil, err
	}
	claims, err := parseState(data)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	return claims, nil
}

func parseState(data []byte) (map[types.UID]*claim, error) {
	var c content
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, err
	}
	if c.Version != stateVersion {
		return nil, fmt.Errorf("version %d is not %d", c.Version, stateVersion)
	}
	claims := map[types.UID]*claim{}
	for _, e := range c.Claims {
		switch {
		case e == nil || e.UID == "" || e.Namespace == "" || e.Name == "":
			return nil, errors.New("a claim has no name or no UID")
		case claims[e.UID] != nil:
			return nil, fmt.Errorf("claim %s is twice in it", e.UID)
		}
		for driver, p := range e.Drivers {
			if driver == "" || p == nil {
				return nil, fmt.Errorf("claim %s has a driver without a state", e.UID)
			}
		}
		claims[e.UID] = e
	}
	return claims, nil
}

// writeState writes the claims in use. A crash leaves the old file or the new one.
func writeState(path string, claims map[types.UID]*claim) error {
	c := content{Version: stateVersion, Claims: make([]*claim, 0, len(claims))}
	for _, uid := range slices.Sorted(maps.Keys(claims)) {
		c.Claims = append(c.Claims, claims[uid])
	}
	return checkpoint.Write(path, c)
}
