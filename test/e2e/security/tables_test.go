package security

import (
	"net/http"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// forms are the media types in which an object or a list can be requested.
var forms = []string{
	jsonType, "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor", "*/*",
	"application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
	"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
	"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
	"application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
	"application/json;stream=watch", "application/json;as=Secret;v=v1;g=",
}

// A Table or a PartialObjectMetadata needs the same permission as the objects that it is made
// from, and one made from metadata shows nothing else.
func TestTablesNeedTheSameRight(t *testing.T) {
	t.Parallel()
	ns := victim(t)
	root := administrator(t)
	root.must(t, "POST", "/api/v1/namespaces/"+ns+"/secrets", `{"metadata":{"name":"open"},"stringData":{"key":"known"}}`)
	grant(t, ns, rbacv1.PolicyRule{APIGroups: []string{""}, Verbs: []string{"get"}, Resources: []string{"secrets"}, ResourceNames: []string{"open"}})
	grant(t, ns, permit("list", "configmaps"))
	joe := bearer(t, token(t, ns, authenticationv1.TokenRequestSpec{}))
	secrets := "/api/v1/namespaces/" + ns + "/secrets"
	joe.must(t, "GET", secrets+"/open", "")
	for _, form := range forms {
		for _, include := range []string{"", "?includeObject=Object", "?includeObject=Metadata", "?includeObject=None", "?includeObject=", "?includeObject=object"} {
			for _, path := range []string{
				secrets, "/api/v1/secrets", secrets + "/victim", "/api/v1/watch/namespaces/" + ns + "/secrets", "/api/v1/namespaces/" + ns + "/configmaps/victim",
			} {
				if a := joe.do(t, "GET", path+include, "", "Accept", form); a.code != http.StatusForbidden && a.code != http.StatusNotAcceptable && a.code != http.StatusBadRequest || reveals(a.body) {
					t.Errorf("%s%s as %s: %d, want 403: %.300s", path, include, form, a.code, a.body)
				}
			}
			if a := joe.do(t, "GET", secrets+"/open"+include, "", "Accept", form); a.code == http.StatusForbidden || reveals(a.body) {
				t.Errorf("what may be read, as %s%s: %d %s", form, include, a.code, a.body)
			}
			if a := joe.do(t, "DELETE", secrets+include, "", "Accept", form); a.code/100 == 2 {
				t.Errorf("deletecollection as %s: %d", form, a.code)
			}
		}
	}
	for _, form := range []string{forms[5], forms[6], forms[8], forms[9]} { // metadata only
		for _, include := range []string{"Metadata", "None", ""} {
			if a := root.must(t, "GET", secrets+"?includeObject="+include, "", "Accept", form); reveals(a.body) {
				t.Errorf("the metadata of secrets as %s, includeObject=%s, holds their data: %s", form, include, a.body)
			}
		}
	}
	if a := root.must(t, "GET", secrets+"?includeObject=Object", "", "Accept", forms[5]); !reveals(a.body) {
		t.Errorf("the objects of a Table hold no data: this test proves less than it says: %s", a.body)
	}
}
