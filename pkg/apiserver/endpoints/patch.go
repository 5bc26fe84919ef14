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

// patchTypes are the media types of patches, in the order errors list them.
func patchTypes() []string {
	return []string{
		string(types.JSONPatchType), string(types.MergePatchType),
		string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType),
	}
}

// patchCall is what a request to patch says.
type patchCall struct {
	writeOptions
	kind types.PatchType
	data []byte
}

func (c *call) readPatch() (p patchCall, err error) {
	p.kind = types.PatchType(wire.ContentType(c.r))
	if !slices.Contains(patchTypes(), string(p.kind)) {
		return p, wire.UnsupportedMedia(patchTypes())
	}
	if p.writeOptions, err = c.patchOptions(p.kind); err != nil {
		return p, err
	}
	if p.data, err = wire.ReadBody(c.w, c.r); err != nil {
		return p, err
	}
	return p, c.claim(p.data, string(p.kind))
}

// patch changes a part of an object, by one of the four kinds of patches.
func (c *call) patch() error {
	f, err := wire.Negotiate(c.r, asObject())
	if err != nil {
		return err
	}
	p, err := c.readPatch()
	if err != nil {
		return err
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
		return c.respondStored(http.StatusCreated, f, s)
	}
	return c.respondStored(http.StatusOK, f, s)
}

// patcher is the function that applies the patch to the present state.
func (c *call) patcher(p patchCall) (func(*present) (scheme.Object, error), error) {
	if p.kind == types.ApplyYAMLPatchType {
		return c.applier(p)
	}
	doc, err := parsePatch(p)
	if err != nil {
		return nil, err
	}
	return func(cur *present) (scheme.Object, error) {
		next := cur.obj.DeepCopyObject().(scheme.Object)
		problems, err := doc.apply(next, c.res.gvk())
		if err != nil {
			return nil, err
		}
		if err := c.patchProblems(p, problems); err != nil {
			return nil, err
		}
		if c.res.Default != nil {
			c.res.Default(next)
		}
		return next, c.checkPatched(next)
	}, nil
}

// patchProblems does with unknown fields what the request wants.
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

// invalidPatch is the 422 of a patch whose result is no such object.
func invalidPatch(shown []byte, err error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), shortened(string(shown)), shortened(err.Error()))})
}

// checkPatched refuses a patch that makes another object of this one.
func (c *call) checkPatched(next scheme.Object) error {
	if next.GetName() != c.info.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", next.GetName(), c.info.Name))
	}
	return c.res.matchNamespace(next, c.info.Namespace)
}

// patchView patches another kind's view of an object.
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
