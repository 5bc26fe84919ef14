// Package admission defines admission plugins and the chain that runs them: a
// plugin may change an object before it is validated and stored, and may refuse
// the request. Package plugins lists the plugins that exist, in their order.
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/
package admission
