package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/authn"
	"podium/pkg/apiserver/request"
)

// wallet is an authenticator whose result the test sets. The header X-User
// names the user.
type wallet struct {
	mu   sync.Mutex
	errs map[string]error
	uid  map[string]string
}

func (a *wallet) Authenticate(r *http.Request) (*request.User, error) {
	name := r.Header.Get("X-User")
	r.Header.Del("X-User") // as the front proxy authenticator removes its headers
	a.mu.Lock()
	defer a.mu.Unlock()
	switch err := a.errs[name]; {
	case err != nil:
		return nil, err
	case name == "":
		return &request.User{Name: "admin", Groups: []string{authn.Masters, authn.Authenticated}}, nil
	}
	return &request.User{Name: name, UID: a.uid[name], Groups: []string{authn.Authenticated}}, nil
}

func (a *wallet) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// open starts a watch and returns a channel that is closed when it ends.
func (w *world) open(path string, header ...string) (ended chan struct{}) {
	ctx, cancel := context.WithCancel(w.Context())
	w.Cleanup(cancel)
	r := httptest.NewRequest("GET", path, http.NoBody).WithContext(ctx)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		rec := httptest.NewRecorder()
		w.handler.ServeHTTP(rec, r)
		if rec.Code != http.StatusOK {
			w.Errorf("%s %v: %d %s", path, header, rec.Code, rec.Body)
		}
	}()
	synctest.Wait()
	if over(ended) {
		w.Fatalf("%s %v does not begin", path, header)
	}
	return ended
}

func over(ended chan struct{}) bool {
	select {
	case <-ended:
		return true
	default:
		return false
	}
}

// A watch ends shortly after its user has lost the credential or the
// permission, for any reason, and continues otherwise.
func TestOpenWatchIsReauthorized(t *testing.T) {
	const watch = cms + "?watch=true&timeoutSeconds=1800"
	for name, tc := range map[string]struct {
		header []string
		lose   func(w *world, a *wallet)
		ends   bool
	}{
		"nothing is lost": {[]string{"X-User", "joe"}, func(*world, *wallet) {}, false},
		"the binding": {[]string{"X-User", "joe"}, func(w *world, _ *wallet) {
			must[any](w, 200, "DELETE", rbacAPI+"namespaces/default/rolebindings/joe", "", "")
		}, true},
		"the role's rule": {[]string{"X-User", "joe"}, func(w *world, _ *wallet) {
			must[any](w, 200, "PATCH", rbacAPI+"namespaces/default/roles/watchers", mergeType, `{"rules":[]}`)
		}, true},
		"another user's binding": {[]string{"X-User", "joe"}, func(w *world, _ *wallet) {
			must[any](w, 200, "DELETE", rbacAPI+"namespaces/default/rolebindings/ann", "", "")
		}, false},
		"the credential": {[]string{"X-User", "joe"}, func(_ *world, a *wallet) {
			a.change(func() { a.errs["joe"] = errors.New("expired") })
		}, true},
		"sight of what decides on credentials": {[]string{"X-User", "joe"}, func(_ *world, a *wallet) {
			a.change(func() { a.errs["joe"] = fmt.Errorf("webhook: %w: connection refused", authn.ErrUnavailable) })
		}, false},
		"the account, created again under its name": {[]string{"X-User", "joe"}, func(_ *world, a *wallet) {
			a.change(func() { a.uid["joe"] = "second" })
		}, true},
		"the right to impersonate": {[]string{"X-User", "ann", "Impersonate-User", "joe"}, func(w *world, _ *wallet) {
			must[any](w, 200, "DELETE", rbacAPI+"clusterrolebindings/ann", "", "")
		}, true},
		"the impersonated user's binding": {[]string{"X-User", "ann", "Impersonate-User", "joe"}, func(w *world, _ *wallet) {
			must[any](w, 200, "DELETE", rbacAPI+"namespaces/default/rolebindings/joe", "", "")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &wallet{errs: map[string]error{}, uid: map[string]string{}}
				w := start(t, withAccess(t), func(cfg *apiserver.Config) { cfg.Authenticator = a })
				must[any](w, 201, "POST", rbacAPI+"namespaces/default/roles", jsonType,
					`{"metadata":{"name":"watchers"},"rules":[{"verbs":["watch"],"apiGroups":[""],"resources":["configmaps"]}]}`)
				for _, user := range []string{"joe", "ann"} {
					must[any](w, 201, "POST", rbacAPI+"namespaces/default/rolebindings", jsonType, binding(user, "Role", "watchers", user))
				}
				must[any](w, 201, "POST", rbacAPI+"clusterroles", jsonType,
					`{"metadata":{"name":"actor"},"rules":[{"verbs":["impersonate"],"apiGroups":[""],"resources":["users"]}]}`)
				must[any](w, 201, "POST", rbacAPI+"clusterrolebindings", jsonType, binding("ann", "ClusterRole", "actor", "ann"))
				ended := w.open(watch, tc.header...)
				time.Sleep(time.Minute)
				synctest.Wait()
				if over(ended) {
					t.Fatal("the watch ended before anything was lost")
				}
				tc.lose(w, a)
				time.Sleep(11 * time.Second)
				synctest.Wait()
				if over(ended) != tc.ends {
					t.Errorf("ended: %v, want %v", over(ended), tc.ends)
				}
			})
		})
	}
}

// BenchmarkRecheck measures one recheck of a watch. A thousand watches cause a
// hundred per second.
func BenchmarkRecheck(b *testing.B) {
	w := start(b, auditToFile(b))
	bindUsers(w, 200)
	check := apiserver.Recheck(w.server, httptest.NewRequest("GET", cms+"?watch=true", nil), "user-100")
	b.ReportAllocs()
	for b.Loop() {
		if err := check(); err != nil {
			b.Fatal(err)
		}
	}
}
