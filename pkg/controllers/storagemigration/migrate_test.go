package storagemigration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/client/metadata"
	"podium/pkg/scheme"
)

// answers is an API that has two pages of objects, a and b, and c. It answers the patch of
// an object with the codes given for it, one after the other, and then with 200.
type answers struct {
	log     []string
	codes   map[string][]int
	expired bool // the token of the second page
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	name := strings.TrimPrefix(r.URL.Path, "/api/v1/secrets")
	a.log = append(a.log, strings.Trim(r.Method+name+" "+r.URL.Query().Get("continue"), " "))
	if r.Method == http.MethodPatch {
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != fmt.Sprintf(`{"metadata":{"resourceVersion":"7","uid":"u%s"}}`, name[1:]) {
			return nil, fmt.Errorf("body %s, %w", body, err)
		}
		code := http.StatusOK
		if left := a.codes[name[1:]]; len(left) > 0 {
			code, a.codes[name[1:]] = left[0], left[1:]
		}
		return answer(code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reasons()[code], Message: "no"})
	}
	switch r.URL.Query().Get("continue") {
	case "":
		return answer(http.StatusOK, page("second", "a", "b"))
	case "second":
		if a.expired {
			return answer(http.StatusGone, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: http.StatusGone, Reason: metav1.StatusReasonExpired, ListMeta: metav1.ListMeta{Continue: "later"}})
		}
	}
	return answer(http.StatusOK, page("", "c"))
}

func reasons() map[int]metav1.StatusReason {
	return map[int]metav1.StatusReason{404: metav1.StatusReasonNotFound, 409: metav1.StatusReasonConflict, 403: metav1.StatusReasonForbidden, 500: metav1.StatusReasonInternalError}
}

func page(next string, names ...string) metav1.PartialObjectMetadataList {
	l := metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{Continue: next}}
	for _, n := range names {
		l.Items = append(l.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: n, UID: types.UID("u" + n), ResourceVersion: "7"}})
	}
	return l
}

func answer(code int, body any) (*http.Response, error) {
	data, err := json.Marshal(body)
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(data))}, err
}

func TestObjectsAreWrittenOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		api     answers
		runs    int // until the end
		problem string
		want    string
	}{
		"AllPages": {"every object of every page is written", answers{}, 1, "", "GET PATCH/a PATCH/b GET second PATCH/c"},
		"GoneOrChanged": {"an object that is gone or that another client wrote needs no write",
			answers{codes: map[string][]int{"a": {404}, "b": {409}}}, 1, "", "GET PATCH/a PATCH/b GET second PATCH/c"},
		"Temporary": {"after an error the migration continues with the same object",
			answers{codes: map[string][]int{"b": {500, 500}}}, 3, "", "GET PATCH/a PATCH/b PATCH/b PATCH/b GET second PATCH/c"},
		"Refused": {"what is refused is not tried again",
			answers{codes: map[string][]int{"b": {403}}}, 1, "patch b: no", "GET PATCH/a PATCH/b"},
		"Expired": {"the list continues with the token that the server offers",
			answers{expired: true}, 1, "", "GET PATCH/a PATCH/b GET second GET later PATCH/c"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := client.New(scheme.New(), client.Config{Servers: []string{"http://api"}, Transport: &tc.api})
			if err != nil {
				t.Fatal(err)
			}
			kind := metadata.Of(c, &scheme.Kind{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, Resource: "secrets"})
			p, runs, problem := &progress{}, 0, ""
			for err = io.EOF; err != nil && runs < 9; runs++ {
				problem, err = p.run(t.Context(), kind)
			}
			if runs != tc.runs || problem != tc.problem {
				t.Errorf("%s: %d runs, problem %q; want %d, %q", tc.reason, runs, problem, tc.runs, tc.problem)
			}
			if diff := cmp.Diff(tc.want, strings.Join(tc.api.log, " ")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
