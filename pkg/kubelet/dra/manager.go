package dra

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/kubelet/plugins"
)

// API reads resource claims and deletes ResourceSlices.
type API interface {
	ResourceClaim(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error)
	// DeleteResourceSlices deletes all ResourceSlices that a field selector matches.
	DeleteResourceSlices(ctx context.Context, selector fields.Selector) error
}

// Config holds the dependencies of a Manager.
type Config struct {
	Root     string // the kubelet's --root-dir
	NodeName string
	API      API
	Log      *slog.Logger
	Metrics  *Metrics // nil: none
	Dialer   plugins.Dialer

	CallTimeout time.Duration // of a call to a driver; 0: 45 s, as upstream
	Grace       time.Duration // for which a driver may be away; 0: 30 s, as upstream
}

// Manager prepares the claims of the node's pods. It is safe for concurrent use.
type Manager struct {
	Config
	registry
	locks  locks
	health healthTable

	changedHealth func(pods []types.UID) // set by Run

	mu      sync.Mutex
	claims  map[types.UID]*claim
	changed bool // since the checkpoint was written
}

var _ plugins.Handler = (*Manager)(nil)

// New returns a Manager that knows the claims which an earlier process has prepared. It
// fails if the checkpoint is damaged: without it, those claims would never be unprepared.
func New(cfg Config) (*Manager, error) {
	if cfg.CallTimeout == 0 {
		cfg.CallTimeout = 45 * time.Second
	}
	if cfg.Grace == 0 {
		cfg.Grace = 30 * time.Second
	}
	m := &Manager{Config: cfg, locks: locks{held: map[types.UID]*lock{}}, registry: newRegistry()}
	claims, err := readState(m.path())
	if err != nil {
		return nil, fmt.Errorf("read the prepared resource claims: %w", err)
	}
	m.claims = claims
	return m, nil
}

func (m *Manager) path() string { return filepath.Join(m.Root, stateFile) }

// saveLocked writes the checkpoint if it has changed. m.mu is held.
func (m *Manager) saveLocked() error {
	if !m.changed {
		return nil
	}
	if err := writeState(m.path(), m.claims); err != nil {
		return fmt.Errorf("write the checkpoint of resource claims: %w", err)
	}
	m.changed = false
	return nil
}

// Pods returns the pods that use claims.
func (m *Manager) Pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[types.UID]bool{}
	for _, c := range m.claims {
		for _, pod := range c.Pods {
			all[pod] = true
		}
	}
	return slices.Collect(maps.Keys(all))
}

// Prepared reports whether all claims of a pod are prepared for it, by this process or by
// an earlier one.
func (m *Manager) Prepared(pod *corev1.Pod) bool {
	names, err := claimNames(pod)
	if err != nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		if c := m.findLocked(pod, name); c == nil || !c.prepared() {
			return false
		}
	}
	return true
}

// findLocked returns the claim with a name that the pod uses; nil if there is none. m.mu
// is held.
func (m *Manager) findLocked(pod *corev1.Pod, name string) *claim {
	for _, c := range m.claims {
		if c.Namespace == pod.Namespace && c.Name == name && c.usedBy(pod.UID) {
			return c
		}
	}
	return nil
}
