package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/flowcontrol/defaults"
	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
	"podium/pkg/backoff"
	"podium/pkg/conditions"
	"podium/pkg/scheme"
)

// The resources that configure flow control.
var (
	flowSchemas    = flowcontrolv1.SchemeGroupVersion.WithResource("flowschemas")
	priorityLevels = flowcontrolv1.SchemeGroupVersion.WithResource("prioritylevelconfigurations")
)

// ensureFairness creates the default FlowSchemas and PriorityLevelConfigurations,
// updates the specs of those that users have not taken over, and deletes those that
// are no longer defaults.
func (s *Server) ensureFairness(ctx context.Context) error {
	if s.cfg.NoPriorities || s.api.ResourceOf(flowcontrolv1.SchemeGroupVersion.WithKind("FlowSchema")) == nil {
		return nil // a server without these kinds
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(reconcileAtOnce)
	err := errors.Join(
		ensureDefaults(ctx, s, g, priorityLevels, defaults.Levels(), defaults.Level),
		ensureDefaults(ctx, s, g, flowSchemas, defaults.Schemas(), defaults.Schema))
	if err := errors.Join(err, g.Wait()); err != nil {
		return fmt.Errorf("make the objects of flow control: %w", err)
	}
	return nil
}

// ensureDefaults starts ensureFairness for one kind, in goroutines of g. It looks at the
// cache first, since there is seldom anything to do.
func ensureDefaults[T scheme.Object](ctx context.Context, s *Server, g *errgroup.Group, gvr schema.GroupVersionResource, all []T, maintain func(have, want T) bool) error {
	list, err := s.api.RecentList(ctx, gvr, "")
	if err != nil {
		return err
	}
	stored := map[string]scheme.Object{}
	for _, obj := range list {
		stored[obj.GetName()] = obj
	}
	for _, want := range all {
		change := func(have scheme.Object) bool { return maintain(have.(T), want) }
		have := stored[want.GetName()]
		delete(stored, want.GetName())
		if have == nil || change(have.DeepCopyObject().(scheme.Object)) {
			g.Go(func() error { return s.shape(ctx, gvr, want, change) })
		}
	}
	for name, obj := range stored {
		if obj.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey] == "true" {
			g.Go(func() error { return s.deleteUnchanged(ctx, gvr, name, obj.GetResourceVersion()) })
		}
	}
	return nil
}

// deleteUnchanged deletes an object unless it has changed since version.
func (s *Server) deleteUnchanged(ctx context.Context, gvr schema.GroupVersionResource, name, version string) error {
	err := s.api.Delete(ctx, gvr, "", name, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// keepDangling maintains the condition Dangling of the FlowSchemas. It blocks until
// ctx ends.
func (s *Server) keepDangling(ctx context.Context) {
	for !s.cfg.NoPriorities {
		select {
		case <-ctx.Done():
			return
		case <-s.flow.Changed():
		}
		for ctx.Err() == nil {
			err := s.tellDangling(ctx)
			if err == nil {
				break
			}
			s.cfg.Log.Debug("update of a FlowSchema's status failed", "err", err)
			if backoff.Sleep(ctx, bootstrapMaxRetry) != nil {
				return
			}
		}
	}
}

// tellDangling writes the condition of each FlowSchema whose condition is out of date.
func (s *Server) tellDangling(ctx context.Context) error {
	levels, err := s.api.List(ctx, priorityLevels, "")
	if err != nil {
		return err
	}
	exists := map[string]bool{}
	for _, l := range levels {
		exists[l.GetName()] = true
	}
	schemas, err := s.api.List(ctx, flowSchemas, "")
	if err != nil {
		return err
	}
	for _, obj := range schemas {
		level := obj.(*flowcontrolv1.FlowSchema).Spec.PriorityLevelConfiguration.Name
		want := s.dangling(level, exists[level])
		if have := conditions.Find(obj.(*flowcontrolv1.FlowSchema).Status.Conditions, want.Type); have != nil && have.Status == want.Status && have.Reason == want.Reason && have.Message == want.Message {
			continue
		}
		_, err := s.api.Update(ctx, flowSchemas, "", obj.GetName(), func(obj scheme.Object) error {
			status := &obj.(*flowcontrolv1.FlowSchema).Status
			status.Conditions = conditions.Set(status.Conditions, want)
			return nil
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// dangling returns the condition of a FlowSchema.
func (s *Server) dangling(level string, exists bool) flowcontrolv1.FlowSchemaCondition {
	c := flowcontrolv1.FlowSchemaCondition{Type: flowcontrolv1.FlowSchemaConditionDangling, LastTransitionTime: metav1.NewTime(s.cfg.Now())}
	text := fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q ", level)
	if exists {
		c.Status, c.Reason, c.Message = flowcontrolv1.ConditionFalse, "Found", text+"and it exists"
	} else {
		c.Status, c.Reason, c.Message = flowcontrolv1.ConditionTrue, "NotFound", text+"but there is no such object"
	}
	return c
}

// fairnessPath is the folder of the pages that show the state of flow control.
const fairnessPath = "/debug/api_priority_and_fairness/"

// serveFairness writes one of these pages.
func (s *Server) serveFairness(w http.ResponseWriter, r *http.Request) {
	var text bytes.Buffer
	if s.cfg.NoPriorities || !s.flow.Dump(&text, strings.TrimPrefix(r.URL.Path, fairnessPath), r.URL.Query().Get("includeRequestDetails") != "") {
		wire.WriteError(w, r, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", "", 0, false))
		return
	}
	wire.WriteText(w, r, http.StatusOK, "text/plain; charset=utf-8", text.Bytes())
}

// objectsPerSeat is how many objects a list may read per seat.
const objectsPerSeat = 100

// width estimates the seats that a request takes: lists, and watches that begin with a
// list, read the objects of the resource.
func (s *Server) width(r *http.Request, req *request.Request) int {
	if req.Verb != "list" && req.Verb != "watch" || req.Name != "" {
		return 1
	}
	n := s.api.Count(req.GVR())
	if n <= objectsPerSeat {
		return 1
	}
	q := r.URL.Query()
	if req.Verb == "watch" && !request.Flag(q, "sendInitialEvents") {
		return 1
	}
	if limit, err := strconv.Atoi(q.Get("limit")); err == nil && limit > 0 && req.FieldSelector == "" && req.LabelSelector == "" {
		n = min(n, limit)
	}
	return (n + objectsPerSeat - 1) / objectsPerSeat
}
