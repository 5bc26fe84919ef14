package kubelet

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podium/pkg/kubelet/nodepressure"
	"podium/pkg/kubelet/pids"
)

// evictionFlags configure when pods are evicted because the node is short of a resource.
type evictionFlags struct {
	hard, soft         []string
	softGrace, reclaim map[string]string
	maxGrace           int
	transition         time.Duration
}

func (e *evictionFlags) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&e.hard, "eviction-hard", append(nodepressure.Defaults(), pids.Signal+"<10%"), "thresholds below which pods are evicted at once, as signal<quantity or signal<percentage")
	fs.StringSliceVar(&e.soft, "eviction-soft", nil, "thresholds below which pods are evicted after a grace period; pid.available is a hard threshold only")
	fs.StringToStringVar(&e.softGrace, "eviction-soft-grace-period", nil, "grace period of each soft threshold, as signal=duration")
	fs.StringToStringVar(&e.reclaim, "eviction-minimum-reclaim", nil, "by how much a signal must exceed its threshold before evictions end, as signal=quantity or signal=percentage")
	fs.IntVar(&e.maxGrace, "eviction-max-pod-grace-period", 0, "maximum seconds that pods get to end when a soft threshold evicts them")
	fs.DurationVar(&e.transition, "eviction-pressure-transition-period", 5*time.Minute, "how long the node reports a pressure condition after it has ended")
}

// thresholds parses the flags: the thresholds of memory and disks, and that of process
// ids.
func (e *evictionFlags) thresholds() ([]nodepressure.Threshold, pids.Threshold, error) {
	var hard, processes []string
	for _, entry := range e.hard {
		if strings.HasPrefix(strings.TrimSpace(entry), pids.Signal+"<") {
			processes = append(processes, entry)
		} else {
			hard = append(hard, entry)
		}
	}
	most, err := pids.ParseThreshold(processes)
	all, parseErr := nodepressure.Parse(nodepressure.Config{Hard: hard, Soft: e.soft, SoftGrace: e.softGrace, Reclaim: e.reclaim})
	if err = errors.Join(err, parseErr); err != nil {
		return nil, most, fmt.Errorf("--eviction-hard, --eviction-soft: %w", err)
	}
	if e.maxGrace < 0 {
		return nil, most, fmt.Errorf("--eviction-max-pod-grace-period is %d: it must not be negative", e.maxGrace)
	}
	return all, most, nil
}

// allocatableReservation returns what pods cannot request: the reserved resources, and the hard thresholds of
// memory and of the node's disk. Limits of cgroups leave out the thresholds, as upstream's do.
func (e *evictionFlags) allocatableReservation(reserved, capacity corev1.ResourceList) corev1.ResourceList {
	out := reserved.DeepCopy()
	if out == nil {
		out = corev1.ResourceList{}
	}
	of := map[nodepressure.Signal]corev1.ResourceName{nodepressure.Memory: corev1.ResourceMemory, nodepressure.NodeFS: corev1.ResourceEphemeralStorage}
	all, _, _ := e.thresholds() // validate has accepted them
	for _, t := range all {
		name, known := of[t.Signal]
		if !known || t.Soft {
			continue
		}
		whole, q := capacity[name], out[name]
		q.Add(*resource.NewQuantity(t.Minimum.Of(whole.Value()), resource.BinarySI))
		out[name] = q
	}
	return out
}

// monitor returns what compares the machine with the thresholds of memory and disks.
func (e *evictionFlags) monitor(rootDir, imageDir string) (*nodepressure.Monitor, error) {
	all, _, err := e.thresholds()
	if err != nil {
		return nil, err
	}
	return &nodepressure.Monitor{
		Read:       func() map[nodepressure.Signal]nodepressure.Observation { return observe(rootDir, imageDir) },
		Thresholds: all, Transition: e.transition, Now: time.Now,
	}, nil
}
