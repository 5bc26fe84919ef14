// Package devicetaint says which devices a rule taints, and which taints are tolerated.
package devicetaint

import resourcev1 "k8s.io/api/resource/v1"

// DeviceID identifies a device in the cluster.
type DeviceID struct{ Driver, Pool, Device string }

// Selects reports whether the selector of a rule selects a device; a nil selector selects
// none.
func Selects(s *resourcev1.DeviceTaintSelector, d DeviceID) bool {
	return s != nil && (s.Driver == nil || *s.Driver == d.Driver) && (s.Pool == nil || *s.Pool == d.Pool) && (s.Device == nil || *s.Device == d.Device)
}

// Matches reports whether a toleration matches a taint.
func Matches(t *resourcev1.DeviceToleration, taint *resourcev1.DeviceTaint) bool {
	if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
		return false
	}
	switch t.Operator {
	case resourcev1.DeviceTolerationOpExists:
		return true
	case "", resourcev1.DeviceTolerationOpEqual:
		return t.Key != "" && t.Value == taint.Value
	}
	return false
}
