package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/kubelet/hardware"
	"podium/pkg/kubelet/references"
	"podium/pkg/kubelet/shutdown"
)

// file holds the fields of the config file that are no flags, with upstream's names.
type file struct {
	CrashLoopBackOff crashLoopBackOff `json:"crashLoopBackOff"`

	// How volumes notice changes of ConfigMaps and Secrets: Watch (the default), Cache or Get.
	ConfigMapAndSecretChangeDetectionStrategy string `json:"configMapAndSecretChangeDetectionStrategy"`

	// The CPUs of --reserved-cpus, which takes precedence.
	ReservedSystemCPUs string `json:"reservedSystemCPUs"`

	// The manifests of static pods: a directory or a file, and a URL with the headers of
	// requests for it; as --pod-manifest-path, --manifest-url and --manifest-url-header,
	// which take precedence.
	StaticPodPath      string              `json:"staticPodPath"`
	StaticPodURL       string              `json:"staticPodURL"`
	StaticPodURLHeader map[string][]string `json:"staticPodURLHeader"`

	// How long a shutdown of the node may be delayed until pods have ended, and how
	// much of that critical pods get at the end of it; 0: shutdowns are not delayed.
	ShutdownGracePeriod             metav1.Duration `json:"shutdownGracePeriod"`
	ShutdownGracePeriodCriticalPods metav1.Duration `json:"shutdownGracePeriodCriticalPods"`
	// Instead of both: the period of each range of priorities.
	ShutdownGracePeriodByPodPriority []shutdownPriority `json:"shutdownGracePeriodByPodPriority"`
}

// crashLoopBackOff limits the back-off of containers that exit again and again.
type crashLoopBackOff struct {
	MaxContainerRestartPeriod *metav1.Duration `json:"maxContainerRestartPeriod,omitempty"` // nil: 5 minutes
}

// shutdownPriority is the period of pods whose priority is at least Priority and below
// the next one.
type shutdownPriority struct {
	Priority                   int32 `json:"priority"`
	ShutdownGracePeriodSeconds int64 `json:"shutdownGracePeriodSeconds"`
}

// The range of crashLoopBackOff.maxContainerRestartPeriod.
const (
	minRestartPeriod = time.Second
	maxRestartPeriod = 5 * time.Minute
)

// validate returns all invalid fields, joined.
func (f *file) validate() error {
	var errs []error
	if most := f.CrashLoopBackOff.MaxContainerRestartPeriod; most != nil && (most.Duration < minRestartPeriod || most.Duration > maxRestartPeriod) {
		errs = append(errs, fmt.Errorf("crashLoopBackOff.maxContainerRestartPeriod %v: want %v to %v", most.Duration, minRestartPeriod, maxRestartPeriod))
	}
	if _, err := references.ParseStrategy(f.ConfigMapAndSecretChangeDetectionStrategy); err != nil {
		errs = append(errs, fmt.Errorf("configMapAndSecretChangeDetectionStrategy: %w", err))
	}
	if _, err := hardware.ParseList(f.ReservedSystemCPUs); err != nil {
		errs = append(errs, fmt.Errorf("reservedSystemCPUs: %w", err))
	}
	whole, critical := f.ShutdownGracePeriod.Duration, f.ShutdownGracePeriodCriticalPods.Duration
	if critical > whole {
		errs = append(errs, fmt.Errorf("shutdownGracePeriodCriticalPods %v is longer than shutdownGracePeriod %v", critical, whole))
	}
	for name, d := range map[string]time.Duration{"shutdownGracePeriod": whole, "shutdownGracePeriodCriticalPods": critical} {
		if d != 0 && d < time.Second {
			errs = append(errs, fmt.Errorf("%s %v: want 0 or at least 1s", name, d))
		}
	}
	if len(f.ShutdownGracePeriodByPodPriority) > 0 && (whole != 0 || critical != 0) {
		errs = append(errs, errors.New("shutdownGracePeriodByPodPriority excludes shutdownGracePeriod and shutdownGracePeriodCriticalPods"))
	}
	seen := map[int32]bool{}
	for _, p := range f.ShutdownGracePeriodByPodPriority {
		if p.ShutdownGracePeriodSeconds < 0 {
			errs = append(errs, fmt.Errorf("shutdownGracePeriodByPodPriority: priority %d has %d seconds", p.Priority, p.ShutdownGracePeriodSeconds))
		}
		if seen[p.Priority] {
			errs = append(errs, fmt.Errorf("shutdownGracePeriodByPodPriority: priority %d appears twice", p.Priority))
		}
		seen[p.Priority] = true
	}
	return errors.Join(errs...)
}

// shutdownPeriods returns the periods of a graceful shutdown; none: it is disabled.
func (f *file) shutdownPeriods() shutdown.Periods {
	var out shutdown.Periods
	for _, p := range f.ShutdownGracePeriodByPodPriority {
		out = append(out, shutdown.Period{Priority: p.Priority, Grace: time.Duration(p.ShutdownGracePeriodSeconds) * time.Second})
	}
	if len(out) == 0 {
		return shutdown.Split(f.ShutdownGracePeriod.Duration, f.ShutdownGracePeriodCriticalPods.Duration)
	}
	return out
}

// addTo adds the fields to the settings that /configz shows.
func (f *file) addTo(settings map[string]any) error {
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	maps.Copy(settings, fields)
	mask(settings, f.StaticPodURLHeader)
	return nil
}
