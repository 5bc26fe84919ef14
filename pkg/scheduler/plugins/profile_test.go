package plugins_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/plugins"
	"podium/pkg/scheduler/snapshot"
)

func build(text string) ([]framework.Weighted, error) {
	var p plugins.Profile
	if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
		return nil, err
	}
	return p.Build(nil)
}

func TestProfileChoosesPlugins(t *testing.T) {
	for name, test := range map[string]struct{ profile, want string }{
		"Default": {"{}", "NodeUnschedulable NodeName TaintToleration:3 NodeAffinity:2 NodePorts NodeResourcesFit:1 PodTopologySpread:2 InterPodAffinity:2 DefaultPreemption NodeResourcesBalancedAllocation:1 ImageLocality:1"},
		"OnlySome": {"plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: NodeName}, {name: NodeResourcesFit, weight: 7}]}}",
			"NodeName NodeResourcesFit:7"},
		"Score": {"plugins: {multiPoint: {disabled: [{name: ImageLocality}, {name: DefaultPreemption}]}, score: {disabled: [{name: '*'}], enabled: [{name: NodeAffinity, weight: 5}]}}",
			"NodeUnschedulable NodeName TaintToleration NodeAffinity:5 NodePorts NodeResourcesFit PodTopologySpread InterPodAffinity NodeResourcesBalancedAllocation"},
		"Unknown": {"{plugins: {multiPoint: {enabled: [{name: Magic}]}, score: {disabled: [{name: Luck}]}}, pluginConfig: [{name: Chance}]}",
			`there is no plugin "Magic"; there is no plugin "Luck"; there is no plugin "Chance"`},
		"BadArgs": {"pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: Best}}}, {name: NodeName, args: {a: 1}}, {name: InterPodAffinity, args: {hardPodAffinityWeight: 101}}, {name: PodTopologySpread, args: {defaultConstraints: [{maxSkew: 1}]}}, {name: ImageLocality}]",
			`pluginConfig of NodeName: the plugin has no arguments; pluginConfig of NodeResourcesFit: scoringStrategy.type: "Best" is not LeastAllocated, MostAllocated or RequestedToCapacityRatio; ` +
				`pluginConfig of PodTopologySpread: defaultConstraints need defaultingType List; pluginConfig of InterPodAffinity: hardPodAffinityWeight must be within 0 to 100`},
		"UnknownArg": {"pluginConfig: [{name: NodeResourcesBalancedAllocation, args: {apiVersion: a, kind: b, weight: 1}}]",
			`pluginConfig of NodeResourcesBalancedAllocation: json: unknown field "weight"`},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := build(test.profile)
			var got []string
			for _, w := range list {
				s := w.Name()
				if w.Weight > 0 {
					s += fmt.Sprint(":", w.Weight)
				}
				got = append(got, s)
			}
			text := strings.Join(got, " ")
			if err != nil {
				text = strings.ReplaceAll(err.Error(), "\n", "; ")
			}
			if diff := cmp.Diff(test.want, text); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestArgs schedules a pod that requests 1 of 10 CPUs, 2 of 10 Gi and 1 of 4 devices on an empty
// node, with one plugin. The wanted scores are computed by hand.
func TestArgs(t *testing.T) {
	const only = "{plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: %[1]s, weight: 1}]}}, pluginConfig: [{name: %[1]s, args: %[2]s}]}"
	for name, test := range map[string]struct{ plugin, args, want string }{
		"Least":        {"NodeResourcesFit", "{}", "85"},
		"LeastDevices": {"NodeResourcesFit", "{scoringStrategy: {type: LeastAllocated, resources: [{name: example.com/device, weight: 3}, {name: cpu}]}}", "78"},
		"Most":         {"NodeResourcesFit", "{scoringStrategy: {type: MostAllocated}}", "15"},
		"Ratio": {"NodeResourcesFit", "{scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}}}",
			"15"},
		"RatioSteep": {"NodeResourcesFit", "{scoringStrategy: {type: RequestedToCapacityRatio, resources: [{name: example.com/device}], requestedToCapacityRatio: {shape: [{utilization: 5, score: 2}, {utilization: 45, score: 6}]}}}",
			"40"},
		"Balanced":        {"NodeResourcesBalancedAllocation", "{}", "95"},
		"BalancedDevices": {"NodeResourcesBalancedAllocation", "{resources: [{name: cpu}, {name: example.com/device}]}", "92"},
		"Ignored":         {"NodeResourcesFit", "{ignoredResources: [example.com/missing]}", "85"},
		"AddedAffinity": {"NodeAffinity", "{addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [a]}]}]}}}",
			"0/1 nodes are available: 1 node(s) didn't match scheduler-enforced node affinity."},
		"AddedPreference": {"NodeAffinity", "{addedAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 3, preference: {matchExpressions: [{key: pool, operator: DoesNotExist}]}}]}}",
			"100"},
		"DefaultConstraints": {"PodTopologySpread", "{defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}",
			"0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required label)."},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := build(fmt.Sprintf(only, test.plugin, test.args))
			if err != nil {
				t.Fatal(err)
			}
			snap := snapshot.New()
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("10"), "memory": resource.MustParse("10Gi"), "pods": resource.MustParse("10"), "example.com/device": resource.MustParse("4")}
			snap.SetNode(n)
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p", Labels: map[string]string{"app": "x"}}}
			snap.SetService("ns", "s", p.Labels)
			requests := corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("2Gi"), "example.com/device": resource.MustParse("1")}
			if name == "Ignored" {
				requests["example.com/missing"] = resource.MustParse("1")
			}
			p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}}
			place, err := framework.New(list, nil).Schedule(snap, snapshot.NewPod(p))
			got := fmt.Sprint(place.Score)
			var fit *framework.FitError
			if errors.As(err, &fit) {
				got = fit.Error()
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
