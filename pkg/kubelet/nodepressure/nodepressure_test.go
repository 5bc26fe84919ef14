package nodepressure

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	got, err := Parse(Config{
		Hard: []string{"nodefs.available<10%", "memory.available<100Mi"}, Soft: []string{"memory.available<1Gi"},
		SoftGrace: map[string]string{"memory.available": "1m30s"}, Reclaim: map[string]string{"nodefs.available": "1Gi"},
	})
	want := []Threshold{
		{Signal: Memory, Minimum: Amount{Quantity: 100 << 20}},
		{Signal: Memory, Minimum: Amount{Quantity: 1 << 30}, Soft: true, Grace: 90 * time.Second},
		{Signal: NodeFS, Minimum: Amount{Fraction: .1}, Reclaim: Amount{Quantity: 1 << 30}},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if all, err := Parse(Config{Hard: Defaults()}); err != nil || len(all) != len(signals()) {
		t.Errorf("defaults %v, %v", all, err)
	}
	for name, row := range map[string]struct {
		config Config
		want   string
	}{
		"NoValue":       {Config{Hard: []string{"memory.available"}}, "want signal<quantity"},
		"NoSignal":      {Config{Hard: []string{"cpu.available<1"}}, "is no signal"},
		"Negative":      {Config{Hard: []string{"memory.available<-1"}}, "negative quantity"},
		"Percentage":    {Config{Hard: []string{"memory.available<NaN%"}}, "invalid percentage"},
		"Twice":         {Config{Hard: []string{"memory.available<1", "memory.available<2"}}, "has two thresholds"},
		"NoGrace":       {Config{Soft: []string{"memory.available<1"}}, "needs a grace period"},
		"UnusedGrace":   {Config{SoftGrace: map[string]string{"memory.available": "1s"}}, "has no soft threshold"},
		"BadGrace":      {Config{Soft: []string{"memory.available<1"}, SoftGrace: map[string]string{"memory.available": "soon"}}, "is not a duration"},
		"UnusedReclaim": {Config{Reclaim: map[string]string{"memory": "1"}}, "which is no signal"},
	} {
		if _, err := Parse(row.config); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("memory.available<100Mi", "1m", "5%")
	f.Fuzz(func(t *testing.T, entry, grace, reclaim string) {
		name, _, _ := strings.Cut(entry, "<")
		all, err := Parse(Config{Soft: []string{entry}, SoftGrace: map[string]string{name: grace}, Reclaim: map[string]string{name: reclaim}})
		if err != nil {
			return
		}
		for _, one := range all {
			if one.Minimum.Of(1000) < 0 || one.Grace < 0 {
				t.Errorf("%q makes %+v", entry, one)
			}
		}
	})
}

func TestMonitor(t *testing.T) {
	all, err := Parse(Config{
		Hard: []string{"memory.available<100"}, Soft: []string{"nodefs.available<20%"},
		SoftGrace: map[string]string{"nodefs.available": "1m"}, Reclaim: map[string]string{"memory.available": "50"},
	})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(0, 0)
	var memory, disk int64
	m := &Monitor{Thresholds: all, Transition: 5 * time.Minute, Now: func() time.Time { return now }, Read: func() map[Signal]Observation {
		return map[Signal]Observation{Memory: {memory, 1000}, NodeFS: {disk, 1000}}
	}}
	for _, step := range []struct {
		after        time.Duration
		memory, disk int64
		want         Signal // "": no pod is evicted
		limit        int64
		pressure     string
		why          string
	}{
		{0, 500, 500, "", 0, "", "there is enough of everything"},
		{time.Second, 99, 500, Memory, 100, "memory", "a hard threshold is met at once"},
		{time.Second, 149, 500, Memory, 100, "memory", "the minimum reclaim is not reached"},
		{time.Second, 150, 500, "", 0, "memory", "it is; the condition stays for the transition period"},
		{time.Second, 120, 500, "", 0, "memory", "above the minimum nothing begins"},
		{5 * time.Minute, 500, 500, "", 0, "", "the transition period is over"},
		{time.Second, 500, 199, "", 0, "disk", "a soft threshold waits for its grace period, the condition does not"},
		{59 * time.Second, 500, 199, "", 0, "disk", "it still waits"},
		{time.Second, 500, 199, NodeFS, 200, "disk", "the grace period is over"},
		{time.Second, 50, 199, Memory, 100, "memory disk", "memory comes first"},
		{time.Second, 500, 500, "", 0, "memory disk", "both are over"},
		{time.Second, 500, 199, "", 0, "memory disk", "the grace period begins again"},
	} {
		now = now.Add(step.after)
		memory, disk = step.memory, step.disk
		met := m.Measure()
		if (met == nil) != (step.want == "") || met != nil && (met.Signal != step.want || met.Limit != step.limit) {
			t.Errorf("%s: %+v", step.why, met)
		}
		var under []string
		memoryPressure, diskPressure := m.Pressure()
		if memoryPressure {
			under = append(under, "memory")
		}
		if diskPressure {
			under = append(under, "disk")
		}
		if got := strings.Join(under, " "); got != step.pressure {
			t.Errorf("%s: pressure of %q, want %q", step.why, got, step.pressure)
		}
	}
	m.Read = func() map[Signal]Observation { return nil }
	if met := m.Measure(); met != nil {
		t.Errorf("what cannot be measured evicts: %+v", met)
	}
}
