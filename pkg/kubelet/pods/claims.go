package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
)

// Claims prepares the resource claims of pods.
type Claims interface {
	// Prepare prepares the pod's claims for a new sandbox. It may be called again.
	Prepare(ctx context.Context, pod *corev1.Pod) error
	// Prepared reports whether the pod's claims are prepared, by an earlier process, too.
	Prepared(pod *corev1.Pod) bool
	// Devices returns the CDI ids of a container's devices.
	Devices(pod *corev1.Pod, c *corev1.Container) ([]string, error)
	// Health returns the health of a container's devices, for its status.
	Health(pod *corev1.Pod, c *corev1.Container) []corev1.ResourceStatus
	// Unprepare releases the claims of a pod whose containers have ended.
	Unprepare(ctx context.Context, pod types.UID) error
	// Pods returns the pods that hold claims.
	Pods() []types.UID
}

// The back-off of claims that could not be prepared or unprepared.
const (
	minClaimDelay = time.Second
	maxClaimDelay = 15 * time.Second
)

// claims prepares the resource claims of a pod and releases them. A driver may take long,
// so both are jobs of the worker.
type claims struct {
	*base
	fresh    bool // prepared for the sandbox that comes next
	released bool
}

func usesClaims(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// forSandbox returns true if the claims are prepared for a new sandbox. Otherwise it
// prepares them.
func (c *claims) forSandbox(now time.Time) bool {
	return c.fresh || c.prepared(now, func() bool { return false })
}

// forContainers returns true if containers can get the devices of the claims. Otherwise it
// prepares them.
func (c *claims) forContainers(now time.Time) bool {
	return c.prepared(now, func() bool { return c.m.cfg.Claims.Prepared(c.pod) })
}

// prepared returns true if the pod has no claims, or done returns true. Otherwise it
// starts a job that prepares them, unless that runs or backs off.
func (c *claims) prepared(now time.Time, done func() bool) bool {
	const key = "claims"
	switch {
	case !usesClaims(c.pod) || c.m.cfg.Claims == nil:
		return true
	case c.busy(key) || !c.retries.due(key, now):
		return false
	case done():
		return true
	}
	pod := c.pod
	c.job(c.startCtx, key, func(ctx context.Context) func() {
		err := c.m.cfg.Claims.Prepare(ctx, pod)
		if ctx.Err() != nil {
			return nil
		}
		return func() {
			if err == nil {
				c.retries.ok(key)
				c.fresh = true
				return
			}
			c.log.Warn("prepare resource claims failed", "error", err)
			c.event(corev1.EventTypeWarning, "FailedPrepareDynamicResources", fmt.Sprintf("Failed to prepare dynamic resources: %v", err))
			c.retries.fail(key, time.Now(), minClaimDelay, maxClaimDelay)
		}
	})
	return false
}

// release returns true when the pod holds no claims. Otherwise it starts a job that
// unprepares them, unless that runs or backs off.
func (c *claims) release(now time.Time) bool {
	const key = "release claims"
	if c.m.cfg.Claims == nil || c.released {
		return true
	}
	if c.busy(key) || !c.retries.due(key, now) {
		return false
	}
	if !slices.Contains(c.m.cfg.Claims.Pods(), c.uid) {
		c.released = true
		return true
	}
	c.job(c.upstream, key, func(ctx context.Context) func() {
		err := c.m.cfg.Claims.Unprepare(ctx, c.uid)
		if ctx.Err() != nil {
			return nil
		}
		return func() {
			if err == nil {
				c.retries.ok(key)
				c.released = true
				return
			}
			c.log.Warn("unprepare resource claims failed", "error", err)
			c.event(corev1.EventTypeWarning, "FailedUnprepareDynamicResources", fmt.Sprintf("Failed to unprepare dynamic resources: %v", err))
			c.retries.fail(key, time.Now(), minClaimDelay, maxClaimDelay)
		}
	})
	return false
}

// addClaims adds the devices of the container's claims to its configuration.
func (m *Manager) addClaims(ctx context.Context, pod *corev1.Pod, spec *corev1.Container, config *runtimeapi.ContainerConfig) error {
	if m.cfg.Claims == nil || !usesClaims(pod) {
		return nil
	}
	ids, err := m.cfg.Claims.Devices(pod, spec)
	if err != nil || len(ids) == 0 {
		return err
	}
	for _, id := range ids {
		config.CDIDevices = append(config.CDIDevices, &runtimeapi.CDIDevice{Name: id})
	}
	return m.checkCDI(ctx)
}

// cdiSince is the version of containerd that has CDI, which is off by default before 2.0.
var cdiSince = version.MajorMinor(1, 7)

// checkCDI returns an error if the runtime is known to ignore CDI devices: the container
// would run without them.
func (m *Manager) checkCDI(ctx context.Context) error {
	v, err := m.cfg.Runtime.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return fmt.Errorf("runtime version: %s", cri.Message(err))
	}
	if v.RuntimeName != "containerd" {
		return nil
	}
	if is, err := version.ParseGeneric(v.RuntimeVersion); err == nil && is.LessThan(cdiSince) {
		return fmt.Errorf("CDI devices are not supported by containerd %s; %s or later is needed", v.RuntimeVersion, cdiSince)
	}
	res, err := m.cfg.Runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return fmt.Errorf("runtime status: %s", cri.Message(err))
	}
	if cdiDisabled(res.Info["config"]) {
		return errors.New("CDI devices are disabled in containerd; set enable_cdi = true in the configuration of its CRI plugin")
	}
	return nil
}

// cdiDisabled reports whether containerd's configuration, as its verbose status has it,
// disables CDI.
func cdiDisabled(config string) bool {
	var c struct {
		EnableCDI *bool `json:"enableCDI"`
	}
	return json.Unmarshal([]byte(config), &c) == nil && c.EnableCDI != nil && !*c.EnableCDI
}
