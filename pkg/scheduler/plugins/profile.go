package plugins

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/plugins/resources"
)

// Profile is an element of the list profiles of upstream's KubeSchedulerConfiguration.
type Profile struct {
	SchedulerName string         `json:"schedulerName,omitempty"` // default: default-scheduler
	Plugins       Sets           `json:"plugins,omitempty"`
	PluginConfig  []PluginConfig `json:"pluginConfig,omitempty"`
}

// Sets choose plugins at all extension points, or at Score.
type Sets struct {
	MultiPoint Set `json:"multiPoint,omitempty"`
	Score      Set `json:"score,omitempty"`
}

// Set changes the default plugins. A disabled plugin that is enabled, too, gets the new weight;
// "*" disables all others.
type Set struct {
	Enabled  []Enabled  `json:"enabled,omitempty"`
	Disabled []Disabled `json:"disabled,omitempty"`
}

// Enabled is a plugin and, unless 0, the weight of its scores.
type Enabled struct {
	Name   string `json:"name"`
	Weight int64  `json:"weight,omitempty"`
}

// Disabled is a plugin, or "*".
type Disabled struct {
	Name string `json:"name"`
}

// PluginConfig are the arguments of a plugin.
type PluginConfig struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"args,omitempty"`
}

// Build returns new plugins. NodeResourcesFit leaves resources to others: backed, to devices where a node
// lacks them, and ignored, to extenders that manage them alone. It reports all errors at once.
func (p Profile) Build(backed func(corev1.ResourceName) bool, ignored ...string) ([]framework.Weighted, error) {
	var out []framework.Weighted
	errs := p.unknown()
	for _, e := range all() {
		used, weight := p.Plugins.MultiPoint.choose(e.name, e.weight)
		if !used {
			continue
		}
		scored, weight := p.Plugins.Score.choose(e.name, weight)
		if !scored {
			weight = 0
		}
		plugin, err := e.make(p.args(e.name))
		if err != nil {
			errs = append(errs, fmt.Errorf("pluginConfig of %s: %w", e.name, err))
			continue
		}
		if fit, ok := plugin.(*resources.Fit); ok {
			fit.Ignore(ignored...)
			fit.Devices(backed)
		}
		out = append(out, framework.Weighted{Plugin: plugin, Weight: weight})
	}
	return out, errors.Join(errs...)
}

// choose returns whether a plugin is used, and its weight.
func (s Set) choose(name string, weight int64) (used bool, w int64) {
	for _, e := range s.Enabled {
		if e.Name == name {
			if e.Weight != 0 {
				weight = e.Weight
			}
			return true, weight
		}
	}
	return !slices.Contains(s.Disabled, Disabled{name}) && !slices.Contains(s.Disabled, Disabled{"*"}), weight
}

func (p Profile) args(name string) json.RawMessage {
	for _, c := range p.PluginConfig {
		if c.Name == name {
			return c.Args
		}
	}
	return nil
}

// unknown returns an error for each plugin that does not exist.
func (p Profile) unknown() []error {
	var errs []error
	check := func(name string) {
		if name != "*" && !slices.ContainsFunc(all(), func(e entry) bool { return e.name == name }) {
			errs = append(errs, fmt.Errorf("there is no plugin %q", name))
		}
	}
	for _, set := range []Set{p.Plugins.MultiPoint, p.Plugins.Score} {
		for _, e := range set.Enabled {
			check(e.Name)
			if e.Weight < 0 {
				errs = append(errs, fmt.Errorf("the weight of %s is negative", e.Name))
			}
		}
		for _, d := range set.Disabled {
			check(d.Name)
		}
	}
	for _, c := range p.PluginConfig {
		check(c.Name)
	}
	return errs
}
