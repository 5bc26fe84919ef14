package frameworktest_test

import (
	"testing"

	"podium/pkg/scheduler/framework"
	"podium/pkg/scheduler/framework/frameworktest"
	"podium/pkg/scheduler/plugins"
	"podium/pkg/scheduler/snapshot"
)

// TestPluginsDeclareWhatTheyRead covers all plugins of the default profile: a new plugin needs
// no such test of its own.
func TestPluginsDeclareWhatTheyRead(t *testing.T) {
	for _, p := range plugins.Default(nil) {
		if r, ok := p.Plugin.(framework.Reader); ok {
			t.Run(p.Name(), func(t *testing.T) { frameworktest.CheckReads(t, r) })
		}
	}
}

// forgetful reads the pod's hostname without declaring it.
type forgetful struct{}

func (forgetful) Name() string                   { return "Forgetful" }
func (forgetful) Reads(p *snapshot.Pod) []any    { return []any{&p.Spec.NodeSelector} }
func (forgetful) Normalize() framework.Normalize { return framework.AsIs }
func (forgetful) PreScore(p *snapshot.Pod) framework.NodeScore {
	return func(snapshot.Node) int64 { return int64(len(p.Spec.NodeSelector) + len(p.Spec.Hostname)) }
}

type recorder struct{ errors int }

func (*recorder) Helper()                 {}
func (r *recorder) Errorf(string, ...any) { r.errors++ }

func TestUndeclaredFieldIsFound(t *testing.T) {
	r := &recorder{}
	frameworktest.CheckReads(r, forgetful{})
	if r.errors != 1 {
		t.Errorf("%d errors for a plugin that reads an undeclared field, want 1", r.errors)
	}
}
