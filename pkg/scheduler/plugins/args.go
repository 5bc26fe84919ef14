package plugins

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/plugins/interpodaffinity"
	"podium/pkg/scheduler/plugins/podtopologyspread"
	"podium/pkg/scheduler/plugins/resources"
)

// without is for plugins that take no arguments.
func without(make func() framework.Plugin) func(json.RawMessage) (framework.Plugin, error) {
	return func(args json.RawMessage) (framework.Plugin, error) {
		if len(args) > 0 {
			return nil, errors.New("the plugin has no arguments")
		}
		return make(), nil
	}
}

// with is for plugins with arguments; unknown ones are refused.
func with[A any](make func(A) (framework.Plugin, error)) func(json.RawMessage) (framework.Plugin, error) {
	return func(raw json.RawMessage) (framework.Plugin, error) {
		var a A
		if len(raw) > 0 {
			fields := map[string]json.RawMessage{}
			if err := json.Unmarshal(raw, &fields); err != nil {
				return nil, err
			}
			delete(fields, "apiVersion")
			delete(fields, "kind")
			rest, err := json.Marshal(fields)
			if err != nil {
				return nil, err
			}
			d := json.NewDecoder(bytes.NewReader(rest))
			d.DisallowUnknownFields()
			if err := d.Decode(&a); err != nil {
				return nil, err
			}
		}
		return make(a)
	}
}

type nodeAffinityArgs struct {
	AddedAffinity *corev1.NodeAffinity `json:"addedAffinity,omitempty"`
}

type balancedArgs struct {
	Resources []resources.Resource `json:"resources,omitempty"`
}

type interPodAffinityArgs struct {
	HardPodAffinityWeight *int64 `json:"hardPodAffinityWeight,omitempty"` // default 1
}

func newInterPodAffinity(a interPodAffinityArgs) (framework.Plugin, error) {
	p := interpodaffinity.Plugin{HardPodAffinityWeight: 1}
	if a.HardPodAffinityWeight != nil {
		p.HardPodAffinityWeight = *a.HardPodAffinityWeight
	}
	if p.HardPodAffinityWeight < 0 || p.HardPodAffinityWeight > 100 {
		return nil, errors.New("hardPodAffinityWeight must be within 0 to 100")
	}
	return p, nil
}

type spreadArgs struct {
	DefaultConstraints []corev1.TopologySpreadConstraint `json:"defaultConstraints,omitempty"`
	DefaultingType     string                            `json:"defaultingType,omitempty"` // System (the default) or List
}

func newSpread(a spreadArgs) (framework.Plugin, error) {
	switch a.DefaultingType {
	case "", "System":
		if len(a.DefaultConstraints) > 0 {
			return nil, errors.New("defaultConstraints need defaultingType List")
		}
		return podtopologyspread.System(), nil
	case "List":
		for i, c := range a.DefaultConstraints {
			if c.MaxSkew < 1 || c.TopologyKey == "" || c.LabelSelector != nil ||
				c.WhenUnsatisfiable != corev1.DoNotSchedule && c.WhenUnsatisfiable != corev1.ScheduleAnyway {
				return nil, fmt.Errorf("defaultConstraints[%d]: maxSkew, topologyKey and whenUnsatisfiable are required, and labelSelector is forbidden", i)
			}
		}
		return podtopologyspread.Plugin{Defaults: a.DefaultConstraints}, nil
	}
	return nil, fmt.Errorf("defaultingType: %q is neither System nor List", a.DefaultingType)
}
