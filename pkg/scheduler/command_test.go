package scheduler_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler"
	"podium/pkg/scheduler/plugins"
)

// TestConfigurationFile reads upstream's KubeSchedulerConfiguration. Each file has an error that
// ends the command before it connects to a server.
func TestConfigurationFile(t *testing.T) {
	const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
	for name, test := range map[string]struct{ text, want string }{
		"Plugin":    {head + "profiles: [{plugins: {multiPoint: {enabled: [{name: Magic}]}}}]", `profiles[0]: there is no plugin "Magic"`},
		"Twice":     {head + "profiles: [{}, {schedulerName: default-scheduler}]", "profiles[1]: there is another profile with schedulerName default-scheduler"},
		"Unknown":   {head + "percentageOfNodesToScore: 50", `unknown field "percentageOfNodesToScore"`},
		"Extender":  {head + "extenders: [{urlPrefix: example.com, prioritizeVerb: p}]", "extenders[0].urlPrefix: \"example.com\" is not an HTTP or HTTPS URL"},
		"Timeout":   {head + "extenders: [{urlPrefix: \"http://x\", httpTimeout: -3s}]", "extenders[0].httpTimeout: -3s is negative"},
		"Point":     {head + "profiles: [{plugins: {filter: {disabled: [{name: NodeName}]}}}]", `unknown field "filter"`},
		"Version":   {"apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n", "the file must begin with"},
		"OtherName": {head + "schedulerName: x\nprofiles: [{}]", "--scheduler-name is x, but no profile has this schedulerName"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := scheduler.NewCommand()
			cmd.SetArgs([]string{"--config", file})
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// TestProfiles has two schedulerNames in one process: one fills nodes, the other leaves them
// empty. The plugins of one do not affect the pods of the other.
func TestProfiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.node(node("a", "4", "8Gi"))
		w.node(node("b", "4", "8Gi"))
		busy := pod("busy", "1")
		busy.Spec.NodeName = "b"
		w.create(busy)
		packing := plugins.Profile{SchedulerName: "packing", PluginConfig: []plugins.PluginConfig{
			{Name: "NodeResourcesFit", Args: []byte(`{"scoringStrategy":{"type":"MostAllocated"}}`)}}}
		stop := w.start(scheduler.Config{Profiles: []plugins.Profile{packing, {SchedulerName: corev1.DefaultSchedulerName}}})
		settle()
		packed, other := pod("packed", "1"), pod("other", "100m")
		packed.Spec.SchedulerName, other.Spec.SchedulerName = "packing", "someone-else"
		w.create(packed)
		w.create(other)
		w.create(pod("usual", "1"))
		settle()
		if got := w.where(); got != "busy:b other: packed:b usual:a" {
			t.Error(got)
		}
		stop()
	})
}
