package endpoints

import (
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
)

const applyYAML = string(types.ApplyYAMLPatchType)

// patchTypes returns the supported media types of patches, in the order of error
// messages. Only kinds with a Go type support strategic merge patches.
func (r *resource) patchTypes() []string {
	list := []string{
		string(types.JSONPatchType), string(types.MergePatchType),
		string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType),
	}
	if r.text {
		list = slices.Delete(list, 2, 3)
	}
	return list
}

// patchCall is a parsed patch request.
type patchCall struct {
	writeOptions
	kind types.PatchType
	data []byte
}

// readPatch reads the options and the patch, and claims the memory for decoding it.
// It returns a 415 for an unsupported type.
func (c *call) readPatch() (p patchCall, err error) {
	p.kind = types.PatchType(wire.ContentType(c.r))
	if accepted := c.res.patchTypes(); !slices.Contains(accepted, string(p.kind)) {
		return p, wire.UnsupportedMedia(accepted)
	}
	if p.writeOptions, err = c.patchOptions(p.kind); err != nil {
		return p, err
	}
	if p.data, err = wire.ReadBody(c.w, c.r); err != nil {
		return p, err
	}
	return p, c.claim(p.data, string(p.kind))
}

// patch changes an object by one of the four kinds of patches.
func (c *call) patch() error {
	f, err := wire.Negotiate(c.r, c.res.offer())
	if err != nil {
		return err
	}
	p, err := c.readPatch()
	if err != nil {
		return err
	}
	if onlyMetadata(f) && c.res.converts() && c.sub == nil && p.kind == types.MergePatchType {
		if done, err := c.patchMetadata(f, p); done || err != nil {
			return err
		}
	}
	change, err := c.patcher(p)
	if err != nil {
		return err
	}
	if p.kind == types.ApplyYAMLPatchType {
		p.applied, p.createAlong = true, c.sub == nil
	}
	s, created, err := c.res.update(c.ctx, c.info.Namespace, c.info.Name, p.writeOptions, change)
	if err != nil {
		return err
	}
	if created {
		return c.respond(http.StatusCreated, f, s)
	}
	return c.respond(http.StatusOK, f, s)
}

// patcher returns a function that applies the patch to the present state, without
// modifying it.
func (c *call) patcher(p patchCall) (func(*present) (scheme.Object, error), error) {
	if p.kind == types.ApplyYAMLPatchType {
		return c.applier(p)
	}
	doc, err := parsePatch(p)
	if err != nil {
		return nil, err
	}
	return func(cur *present) (scheme.Object, error) {
		next, err := c.res.fromStorage(cur.obj.DeepCopyObject().(scheme.Object))
		if err != nil {
			return nil, err
		}
		problems, err := doc.apply(next, c.res.gvk())
		if err != nil {
			return nil, err
		}
		next, unknown, err := c.res.toStorage(next)
		if err != nil {
			return nil, err
		}
		if err := c.patchProblems(p, append(problems, unknown...)); err != nil {
			return nil, err
		}
		return next, c.checkPatched(next)
	}, nil
}

// patchProblems handles unknown and duplicate fields as the request's field
// validation requires: an error, warnings, or nothing.
func (c *call) patchProblems(p patchCall, problems []error) error {
	if len(problems) == 0 || p.validation == metav1.FieldValidationIgnore {
		return nil
	}
	if p.validation == metav1.FieldValidationStrict {
		return invalidPatch(p.data, runtime.NewStrictDecodingError(problems))
	}
	c.warn(problems)
	return nil
}

// invalidPatch returns the 422 for a patch whose result does not decode as the
// kind.
func invalidPatch(shown []byte, err error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), shortened(string(shown)), shortened(err.Error()))})
}

// checkPatched returns a 400 if a patch changes the name or namespace of the
// object.
func (c *call) checkPatched(next scheme.Object) error {
	if next.GetName() != c.info.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", next.GetName(), c.info.Name))
	}
	return c.res.matchNamespace(next, c.info.Namespace)
}

// patchView patches an object through a view of another kind, such as Scale.
func (c *call) patchView() error {
	p, err := c.readPatch()
	if err != nil {
		return err
	}
	if p.kind == types.ApplyYAMLPatchType {
		return c.applyView(p)
	}
	doc, err := parsePatch(p)
	if err != nil {
		return err
	}
	return c.changeView(p.writeOptions, func(view runtime.Object) (runtime.Object, error) {
		problems, err := doc.apply(view, c.sub.GVK)
		if err != nil {
			return nil, err
		}
		return view, c.patchProblems(p, problems)
	})
}
