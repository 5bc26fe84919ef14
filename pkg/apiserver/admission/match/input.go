package match

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/authz"
	"podium/pkg/expression"
)

// Input returns the values of an expression's variables for a request that
// matches in a form: all but params and namespaceObject.
func Input(a *admission.Attributes, in *admission.Form, authorizer authz.Authorizer) (*expression.Input, error) {
	input := &expression.Input{}
	var err error
	if input.Object, err = in.Tree(a.Subject()); err != nil {
		return nil, err
	}
	if a.Old != nil {
		if input.OldObject, err = in.Tree(a.Old); err != nil {
			return nil, err
		}
	}
	r, err := Request(a, in)
	if err != nil {
		return nil, err
	}
	if input.Request, err = runtime.DefaultUnstructuredConverter.ToUnstructured(r); err != nil {
		return nil, err
	}
	if authorizer != nil {
		input.Authorizer, input.RequestResource = authorizerValues(authorizer, User(a), target{a, in})
	}
	return input, nil
}

// target is what authorizer.requestResource is about.
type target struct {
	a  *admission.Attributes
	in *admission.Form
}

func (t target) GetName() string                          { return t.a.Name }
func (t target) GetNamespace() string                     { return Namespace(t.a) }
func (t target) GetResource() schema.GroupVersionResource { return t.in.Resource }
func (t target) GetSubresource() string                   { return t.a.Subresource }
