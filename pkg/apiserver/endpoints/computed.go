package endpoints

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/wire"
	"podium/pkg/storage/watchcache"
)

// getComputed answers with one object that the server computes for the request.
func (c *call) getComputed() error {
	f, err := wire.Negotiate(c.r, c.res.offer())
	if err != nil {
		return err
	}
	objects := c.res.Compute(c.ctx, c.info.Name)
	if len(objects) == 0 {
		return c.res.notFound(c.info.Name)
	}
	return c.respond(http.StatusOK, f, &stored{obj: objects[0]})
}

// listComputed answers with the objects that the server computes for the request. They
// have no revisions, so that there is one page.
func (c *call) listComputed() error {
	f, err := wire.Negotiate(c.r, c.res.listOffer())
	if err != nil {
		return err
	}
	o, err := c.listOptions(false)
	if err != nil {
		return err
	}
	objects := []*stored{}
	for _, obj := range c.res.Compute(c.ctx, "") {
		if o.matches(&watchcache.Entry{Labels: watchcache.NewSet(obj.GetLabels()), Fields: watchcache.NewSet(c.res.fields(obj))}) {
			objects = append(objects, &stored{obj: obj})
		}
	}
	return answerList(c, f, objects, metav1.ListMeta{})
}
