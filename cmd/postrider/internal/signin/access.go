package signin

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/admin"
)

// Access says who may do what, by the claims of the provider.
type Access struct {
	// Claim is the path of a claim with groups or roles, such as "groups" or "realm_access.roles"; Roles maps its values.
	Claim string
	Roles map[string]admin.Role
	// SagaRoles maps values of Claim to the roles in which people answer questions of sagas, in addition to Roles.
	SagaRoles map[string]string
	// Everyone: people without a mapped value are viewers. It needs Allow: at a public provider, everyone is the world.
	Everyone bool
	// Allow are claims, and the values that everybody must have who signs in.
	Allow map[string]string
}

func (a Access) validate() error {
	var errs []error
	if a.Everyone && len(a.Allow) == 0 {
		errs = append(errs, errors.New("everyone may view, and at a public provider everyone is the world: say which claim they must have (allow)"))
	}
	if !a.Everyone && (a.Claim == "" || len(a.Roles) == 0) {
		errs = append(errs, errors.New("nobody gets a role: name a claim with groups (roles_claim) and the roles of its values (roles)"))
	}
	for value, role := range a.Roles {
		if !slices.Contains(admin.Roles, role) {
			errs = append(errs, fmt.Errorf("%s has the role %q; use viewer, operator or admin", value, role))
		}
	}
	for value, role := range a.SagaRoles {
		if !admin.ValidSagaRole(role) {
			errs = append(errs, fmt.Errorf("%s has the saga role %q; name a role that a saga asks, of 1 to %d bytes of UTF-8", value, role, admin.MaxSagaRoleBytes))
		}
	}
	if len(a.SagaRoles) > 0 && a.Claim == "" {
		errs = append(errs, errors.New("nobody gets a saga role: name the claim with groups (roles_claim)"))
	}
	return errors.Join(errs...)
}

// role is the largest role that claims have.
func (a Access) role(c claims) (role admin.Role, err error) {
	for name, value := range a.Allow {
		if !slices.Contains(c.values(name), value) {
			return "", refused("Your account is not allowed here: its %s is another one.", name)
		}
	}
	if c.leftOut(a.Claim) {
		return "", refused("The provider has left out your groups, because there are too many. An admin can have it send only those of this program.")
	}
	if a.Everyone {
		role = admin.Viewer
	}
	for _, value := range c.values(a.Claim) {
		if mapped, ok := a.Roles[value]; ok && mapped.Includes(role) {
			role = mapped
		}
	}
	if role == "" {
		return "", refused("You have no role here. An admin gives one to one of your groups.")
	}
	return role, nil
}

// sagaRoles are those that claims have, sorted.
func (a Access) sagaRoles(c claims) (roles []string) {
	for _, value := range c.values(a.Claim) {
		if role, ok := a.SagaRoles[value]; ok {
			roles = append(roles, role)
		}
	}
	slices.Sort(roles)
	return slices.Compact(roles)
}

// claims are what a provider says of a person.
type claims map[string]any

// text is the first of these claims that is a text and not empty.
func (c claims) text(names ...string) string {
	for _, name := range names {
		if text, _ := c[name].(string); text != "" {
			return text
		}
	}
	return ""
}

// values are the texts at a path of claims, which are one or several.
func (c claims) values(path string) (out []string) {
	var at any = map[string]any(c)
	if _, exact := c[path]; exact { // names may have dots: "https://example.org/roles"
		at = c[path]
	} else {
		for name := range strings.SplitSeq(path, ".") {
			object, _ := at.(map[string]any)
			at = object[name]
		}
	}
	switch v := at.(type) {
	case string:
		out = append(out, v)
	case []any:
		for _, one := range v {
			if text, ok := one.(string); ok {
				out = append(out, text)
			}
		}
	}
	return out
}

// leftOut reports whether the provider has put a claim somewhere else, for its size.
func (c claims) leftOut(path string) bool {
	names, _ := c["_claim_names"].(map[string]any)
	name, _, _ := strings.Cut(path, ".")
	_, whole := names[path]
	_, part := names[name]
	return whole || part
}
