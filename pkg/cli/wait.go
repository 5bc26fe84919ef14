package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"podium/pkg/cli/jsonpath"
	"podium/pkg/cli/rest"
)

// waitOptions are the flags of wait.
type waitOptions struct {
	*Factory
	selection
	For     []string
	Timeout time.Duration
	printing
}

func newWait(f *Factory, run func(context.Context, *waitOptions) error) *cobra.Command {
	o := &waitOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "wait TYPE/NAME... --for=CONDITION",
		Short: "Wait for a specific condition on one or many resources",
		Example: `  podium wait --for=condition=Ready pod/web-1 --timeout=60s
  podium wait --for=delete pod -l app=web
  podium wait --for=jsonpath='{.status.phase}'=Running pod/web-1`,
		ValidArgsFunction: f.completeResources,
		RunE:              on(&o.selection, o, run),
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&o.For, "for", nil, "condition=NAME[=VALUE], jsonpath={PATH}[=VALUE], create, or delete")
	fs.DurationVar(&o.Timeout, "timeout", 30*time.Second, "length of time to wait before giving up; 0: check once; negative: a week")
	o.printingFlags(cmd, "print the objects: ", "")
	o.listFlags(cmd)
	o.fileFlags(cmd, "the objects")
	return cmd
}

// condition is a condition to wait for. holds is called with nil if the object
// does not exist.
type condition struct {
	holds func(*rest.Object) (bool, error)
	gone  bool // the object must be deleted
	birth bool // the object must exist
}

// parseCondition parses a value of --for.
func parseCondition(text string) (condition, error) {
	kind, value, _ := strings.Cut(text, "=")
	switch strings.ToLower(kind) {
	case "delete":
		return condition{gone: true, holds: func(o *rest.Object) (bool, error) { return o == nil, nil }}, nil
	case "create":
		return condition{birth: true, holds: func(o *rest.Object) (bool, error) { return o != nil, nil }}, nil
	case "condition":
		name, want, given := strings.Cut(value, "=")
		if name == "" {
			return condition{}, errors.New("--for=condition=NAME: the name is missing")
		}
		if !given {
			want = "true"
		}
		return condition{holds: func(o *rest.Object) (bool, error) { return hasCondition(o, name, want), nil }}, nil
	case "jsonpath":
		return parsePathCondition(value)
	}
	return condition{}, fmt.Errorf("unrecognized condition: %q (use condition=NAME, jsonpath={PATH}=VALUE, create or delete)", text)
}

// hasCondition reports whether an object has a condition with the status want,
// observed for the present generation. Names and statuses are compared without
// case.
func hasCondition(o *rest.Object, name, want string) bool {
	if o == nil {
		return false
	}
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range list {
		c, ok := item.(map[string]any)
		if !ok || !strings.EqualFold(fmt.Sprint(c["type"]), name) {
			continue
		}
		if seen, ok := c["observedGeneration"].(int64); ok && seen < o.GetGeneration() {
			return false
		}
		return strings.EqualFold(fmt.Sprint(c["status"]), want)
	}
	return false
}

// parsePathCondition parses {PATH}=VALUE. Without a value, the path only has to
// exist.
func parsePathCondition(text string) (condition, error) {
	path, want, given := text, "", false
	if end := strings.LastIndexByte(text, '}'); strings.HasPrefix(text, "{") && end > 0 {
		path = text[:end+1]
		want, given = strings.CutPrefix(text[end+1:], "=")
	} else {
		path, want, given = strings.Cut(text, "=")
	}
	want = strings.Trim(want, `'"`)
	t, err := jsonpath.ParsePath(path)
	if err != nil {
		return condition{}, err
	}
	return condition{holds: func(o *rest.Object) (bool, error) {
		if o == nil {
			return false, nil
		}
		found, err := t.Find(o.Object, true)
		if err != nil || len(found) == 0 {
			return false, err
		}
		if !given {
			return true, nil
		}
		return len(found) == 1 && jsonpath.Text(found[0]) == want, nil
	}}, nil
}

func runWait(ctx context.Context, o *waitOptions) error {
	if len(o.For) == 0 {
		return errors.New("--for is required: condition=NAME, jsonpath={PATH}=VALUE, create or delete")
	}
	var conditions []condition
	for _, text := range o.For {
		c, err := parseCondition(text)
		if err != nil {
			return err
		}
		conditions = append(conditions, c)
	}
	timeout := o.Timeout
	if timeout < 0 {
		timeout = 7 * 24 * time.Hour
	}
	report, err := newReport(o.Factory, o.options(), "none")
	if err != nil {
		return err
	}
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	targets, err := o.resolve(ctx, o.Factory, false)
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		if conditions[0].gone {
			return nil
		}
		return errors.New("no matching resources found")
	}
	ctx, cancel := context.WithTimeout(ctx, max(timeout, time.Second))
	defer cancel()
	var errs []error
	for _, t := range targets {
		for _, cond := range conditions {
			last, err := o.await(ctx, c, t, cond, timeout == 0)
			if err == nil {
				err = report.wait(t, last, cond)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// wait reports that a target, last seen as last, met a condition.
func (r *report) wait(t target, last *rest.Object, cond condition) error {
	if r.printer == nil {
		last = nil
	}
	switch {
	case cond.gone:
		return r.tell(t, last, "deleted")
	case cond.birth:
		return r.tell(t, last, "created")
	}
	return r.tell(t, last, "condition met")
}

// await waits until a target meets a condition. It returns the object as it was seen
// last, nil if it was never seen. With once, it checks once and returns a timeout.
func (o *waitOptions) await(ctx context.Context, c *rest.Cluster, t target, cond condition, once bool) (last *rest.Object, err error) {
	last = t.Object
	uid := ""
	if t.Object != nil && !o.given() {
		uid = string(t.Object.GetUID())
	}
	began := false
	err = c.Follow(ctx, t.Kind, t.Namespace, t.Name, func(obj *rest.Object) error {
		if obj != nil && cond.gone && uid != "" && string(obj.GetUID()) != uid {
			obj = nil // it was replaced by another object of the same name
		}
		if obj == nil && !cond.gone && !cond.birth && !began {
			_, err := c.Get(ctx, t.Kind, t.Namespace, t.Name)
			if err != nil {
				return err // the server's error for a missing object
			}
		}
		began = true
		if obj != nil {
			last, uid = obj, cmp.Or(uid, string(obj.GetUID()))
		}
		ok, err := cond.holds(obj)
		switch {
		case err != nil:
			return err
		case ok:
			return rest.ErrStop
		case once:
			return context.DeadlineExceeded
		}
		return nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("timed out waiting for the condition on %s/%s", t.Kind.Plural(), t.Name)
	}
	return last, err
}
