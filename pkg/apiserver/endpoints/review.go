package endpoints

import (
	"net/http"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/wire"
)

// review answers a review such as SubjectAccessReview. It stores nothing.
func (c *call) review() error {
	f, err := wire.Negotiate(c.r, wire.Offer{})
	if err != nil {
		return err
	}
	o, err := c.createOptions()
	if err != nil {
		return err
	}
	b, err := c.readBody()
	if err != nil {
		return err
	}
	obj, err := c.decodeObject(b, o.validation)
	if err != nil {
		return err
	}
	if err := c.res.matchNamespace(obj, c.info.Namespace); err != nil {
		return err
	}
	a := &admission.Attributes{
		Operation: admission.Create, Namespace: obj.GetNamespace(), Name: obj.GetName(), Object: obj, Options: o.options, DryRun: o.dryRun,
		Forms: c.res.forms,
	}
	if err := c.res.admit(c.ctx, a, nil); err != nil {
		return err
	}
	answer, err := c.res.Review(c.ctx, c.res.api, a.User, obj)
	if err != nil {
		return err
	}
	return wire.WriteObject(c.w, c.r, http.StatusCreated, f, c.res.gvk(), wire.Bare(answer))
}
