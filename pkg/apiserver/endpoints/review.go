package endpoints

import (
	"net/http"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
)

// review answers the question that the body asks. Nothing is stored.
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
	user := request.UserFrom(c.ctx)
	a := &admission.Attributes{
		Operation: admission.Create, Kind: c.res.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName(),
		Object: obj, DryRun: o.dryRun, User: user,
	}
	if err := admission.Run(c.ctx, c.res.api.Admission.Mutate, a); err != nil {
		return err
	}
	if err := admission.Run(c.ctx, c.res.api.Admission.Validate, a); err != nil {
		return err
	}
	answer, err := c.res.Review(c.ctx, c.res.api, user, obj)
	if err != nil {
		return err
	}
	return wire.WriteObject(c.w, c.r, http.StatusCreated, f, c.res.gvk(), wire.Bare(answer))
}
