package security

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// listPage is the metadata of a list and its items.
type listPage struct {
	Metadata metav1.ListMeta
	Items    []struct{ Metadata metav1.ObjectMeta }
}

func pageOf(t *testing.T, a answer) listPage {
	t.Helper()
	var p listPage
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("%v in %d %s", err, a.code, a.body)
	}
	return p
}

func encoded(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// A continue token names where a list continues; the client can change it, and it grants
// nothing. Whatever it contains, the list stays in the namespace and the resource of its path.
func TestForgedContinueTokens(t *testing.T) {
	t.Parallel()
	theirs := victim(t)
	mine, key := accountWith(t, permit("list get watch create", "secrets configmaps pods"))
	joe, root := bearer(t, key), administrator(t)
	for _, name := range []string{"a", "b", "c"} {
		for _, resource := range []string{"secrets", "configmaps"} {
			root.must(t, "POST", "/api/v1/namespaces/"+mine+"/"+resource, `{"metadata":{"name":"`+name+`"}}`)
		}
	}
	list := func(resource string) string { return "/api/v1/namespaces/" + mine + "/" + resource }
	first := pageOf(t, joe.must(t, "GET", list("configmaps")+"?limit=1", ""))
	second := pageOf(t, joe.must(t, "GET", list("configmaps")+"?limit=1&continue="+first.Metadata.Continue, ""))
	if len(second.Items) != 1 || second.Items[0].Metadata.Name == first.Items[0].Metadata.Name {
		t.Fatalf("a token as it was given does not work: this test would prove nothing: %+v", second)
	}
	revision, err := strconv.ParseInt(second.Metadata.ResourceVersion, 10, 64)
	check(t, err)
	tokens := map[string]string{
		"all secrets":      pageOf(t, root.must(t, "GET", "/api/v1/secrets?limit=1", "")).Metadata.Continue,
		"all configmaps":   pageOf(t, root.must(t, "GET", "/api/v1/configmaps?limit=1", "")).Metadata.Continue,
		"the system's":     pageOf(t, root.must(t, "GET", "/api/v1/namespaces/kube-system/configmaps?limit=1", "")).Metadata.Continue,
		"another resource": pageOf(t, root.must(t, "GET", list("secrets")+"?limit=1", "")).Metadata.Continue,
		"not base64":       "%%%", "empty JSON": encoded("{}"), "a list": encoded("[]"), "null": encoded("null"), "deep": encoded(strings.Repeat("[", 5000) + strings.Repeat("]", 5000)),
	}
	for i, start := range []string{
		"../" + theirs + "/victim", "../../secrets/" + theirs + "/victim", "/registry/secrets/" + theirs + "/", "/", "", "\x00", ".", "..", "//", theirs + "/victim",
		"../", "a/../../" + theirs + "/", "%2e%2e/" + theirs, "\xff\xff", "~", "../../../", "a\x00", "a/../../../../",
	} {
		for _, version := range []string{"meta.k8s.io/v1", "v1", ""} {
			for _, at := range []any{-1, revision, 0, -2, 9.3e18, "x"} {
				text, err := json.Marshal(map[string]any{"v": version, "rv": at, "start": start})
				check(t, err)
				tokens[fmt.Sprintf("start %d %q of %q at %v", i, start, version, at)] = encoded(string(text))
			}
		}
	}
	for what, token := range tokens {
		for _, resource := range []string{"secrets", "configmaps", "pods"} {
			for _, more := range []string{"", "&limit=1", "&limit=500&resourceVersionMatch=NotOlderThan"} {
				a := joe.do(t, "GET", list(resource)+"?continue="+url.QueryEscape(token)+more, "")
				if reveals(a.body) || a.code >= 500 {
					t.Fatalf("%s, of %s: %d %s", what, resource, a.code, a.body)
				}
				if a.code != http.StatusOK {
					continue
				}
				for _, item := range pageOf(t, a).Items {
					if item.Metadata.Namespace != mine {
						t.Errorf("%s, of %s: shows %s/%s", what, resource, item.Metadata.Namespace, item.Metadata.Name)
					}
				}
			}
		}
		if a := joe.do(t, "GET", "/api/v1/secrets?continue="+url.QueryEscape(token), ""); a.code != http.StatusForbidden {
			t.Errorf("%s, of all secrets: %d, want 403", what, a.code)
		}
	}
}
