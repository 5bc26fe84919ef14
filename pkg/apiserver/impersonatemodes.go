package apiserver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"podium/pkg/apiserver/authz"
	"podium/pkg/apiserver/request"
)

// impersonationMode is a way to act as another user. The constrained ones need two permissions: one
// for who the other user is (verb impersonate:MODE) and one for what the request does
// (impersonate-on:MODE:VERB). The last one needs only the verb impersonate.
// https://kep.k8s.io/5284
type impersonationMode struct {
	name    string // "": not constrained
	applies func(as, by *request.User) bool
}

const associatedNode = "associated-node"

// impersonationModes returns all modes, in the order in which they are tried.
func impersonationModes() []impersonationMode {
	isNode := func(u *request.User) bool { return nodeOf(u.Name) != "" }
	isAccount := func(u *request.User) bool { _, _, ok := serviceAccount(u.Name); return ok }
	return []impersonationMode{
		{associatedNode, func(as, by *request.User) bool {
			return isNode(as) && onlyNamed(as) && isAccount(by) && runsOn(by, nodeOf(as.Name))
		}},
		{"arbitrary-node", func(as, _ *request.User) bool { return isNode(as) && onlyNamed(as) }},
		{"serviceaccount", func(as, _ *request.User) bool { return isAccount(as) && onlyNamed(as) }},
		{"user-info", func(as, _ *request.User) bool { return !isNode(as) && !isAccount(as) }},
		{"", func(_, _ *request.User) bool { return true }},
	}
}

// constraint returns the verb that constrains the mode, "" if it is not constrained.
func (m impersonationMode) constraint() string {
	if m.name == "" {
		return ""
	}
	return "impersonate:" + m.name
}

// nodeOf returns the name of the node that the user of this name is, "" if it is none.
func nodeOf(user string) string {
	name, ok := strings.CutPrefix(user, "system:node:")
	if !ok || len(apivalidation.NameIsDNSSubdomain(name, false)) > 0 {
		return ""
	}
	return name
}

func onlyNamed(u *request.User) bool { return u.UID == "" && len(u.Groups) == 0 && len(u.Extra) == 0 }

// runsOn reports whether the token of a service account was issued for a pod on the node.
func runsOn(u *request.User, node string) bool {
	return slices.Equal(u.Extra["authentication.kubernetes.io/node-name"], []string{node})
}

// actAs returns the first mode in which the user by may act as as for a request, else the
// refusal of the first that applies.
func (s *Server) actAs(ctx context.Context, by, as *request.User, info *request.Info) (m impersonationMode, first error) {
	for _, m := range impersonationModes() {
		if !m.applies(as, by) {
			continue
		}
		err := s.actIn(ctx, m, by, as, info)
		if err == nil {
			return m, nil
		}
		if first == nil {
			first = err
		}
	}
	return impersonationMode{}, first
}

// actIn returns nil if the user by may act as as for a request in the mode.
func (s *Server) actIn(ctx context.Context, m impersonationMode, by, as *request.User, info *request.Info) error {
	if m.name == associatedNode { // as upstream: the decision is the same on every node
		by = &request.User{Name: by.Name, UID: by.UID, Groups: by.Groups, Extra: map[string][]string{
			"authentication.kubernetes.io/associated-node-keys": slices.Sorted(maps.Keys(by.Extra)),
		}}
	}
	i := impersonation{s: s, ctx: ctx, mode: m, by: by}
	if m.name != "" {
		on := *info
		on.Verb = "impersonate-on:" + m.name + ":" + info.Verb
		if err := i.ask(&on); err != nil {
			return err
		}
	}
	if err := i.ask(i.user(as.Name)); err != nil {
		return err
	}
	if as.UID != "" {
		if err := i.ask(i.about("uids", "", as.UID)); err != nil {
			return err
		}
	}
	if err := i.groups(as.Groups); err != nil {
		return err
	}
	return i.extra(as.Extra)
}

// impersonation is one attempt to act as another user in a mode.
type impersonation struct {
	s    *Server
	ctx  context.Context
	mode impersonationMode
	by   *request.User
}

// ask returns nil if the user is authorized for info.
func (i *impersonation) ask(info *request.Info) error {
	if d, reason := i.s.cfg.Authorizer.Authorize(i.ctx, i.by, info); d != authz.Allow {
		return i.s.refusal(i.by, info, reason)
	}
	return nil
}

// about returns what the user must be authorized for to have a part of another identity.
func (i *impersonation) about(resource, sub, name string) *request.Info {
	info := &request.Info{IsResource: true, Verb: "impersonate", Group: "authentication.k8s.io", Version: "v1", Resource: resource, Subresource: sub, Name: name}
	if i.mode.name != "" {
		info.Verb = i.mode.constraint()
	} else if resource != "uids" && resource != "userextras" {
		info.Group = ""
	}
	return info
}

func (i *impersonation) user(name string) *request.Info {
	if namespace, account, ok := serviceAccount(name); ok {
		info := i.about("serviceaccounts", "", account)
		info.Namespace = namespace
		return info
	}
	switch node := nodeOf(name); {
	case node == "" || i.mode.name == "":
		return i.about("users", "", name)
	case i.mode.name == associatedNode:
		return i.about("nodes", "", "*")
	default:
		return i.about("nodes", "", node)
	}
}

// many is the number of parts from which on a constrained mode first asks for all.
const many = 4

func (i *impersonation) groups(names []string) error {
	if i.mode.name != "" {
		if slices.Contains(names, "") {
			return i.s.refusal(i.by, i.about("groups", "", ""), "impersonating the empty string group is not allowed")
		}
		if slices.Contains(names, request.Masters) {
			return i.s.refusal(i.by, i.about("groups", "", request.Masters), "impersonating the system:masters group is not allowed")
		}
		if len(names) >= many && i.ask(i.about("groups", "", "*")) == nil {
			return nil
		}
	}
	for _, name := range names {
		if err := i.ask(i.about("groups", "", name)); err != nil {
			return err
		}
	}
	return nil
}

func (i *impersonation) extra(all map[string][]string) error {
	if i.mode.name != "" {
		if err := checkExtra(all); err != nil {
			return i.s.refusal(i.by, i.about("userextras", "", ""), err.Error())
		}
		n := 0
		for _, values := range all {
			n += len(values)
		}
		if n >= many && i.ask(i.about("userextras", "*", "*")) == nil {
			return nil
		}
	}
	for key, values := range all {
		for _, value := range values {
			if err := i.ask(i.about("userextras", key, value)); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkExtra returns why a constrained mode refuses extras.
func checkExtra(all map[string][]string) error {
	for key, values := range all {
		if key == "" {
			return fmt.Errorf("impersonating the empty string key in extra is not allowed")
		}
		if err := validation.IsDomainPrefixedPath(field.NewPath("extra", "key"), key).ToAggregate(); err != nil {
			return fmt.Errorf("impersonating an invalid key in extra is not allowed: %w", err)
		}
		if slices.Contains(values, "") {
			return fmt.Errorf("impersonating the empty string value in extra is not allowed")
		}
	}
	return nil
}
