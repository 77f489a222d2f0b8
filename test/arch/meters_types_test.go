package arch_test

import (
	"go/types"
	"slices"
)

// mostMethodsOfPort is how many methods an interface may have, with those
// of the interfaces that it embeds.
const mostMethodsOfPort = 8

// flatFields counts the fields of each struct. The fields of an embedded struct
// of the same package count in place of the embedded field: to move fields
// there makes the struct no smaller.
func flatFields(t tree, sources []*source) map[string]int {
	figures := map[string]int{}
	for name, named := range t.typesOf(sources) {
		if _, ok := named.Underlying().(*types.Struct); ok {
			figures[name] = flatFieldsOf(named, nil)
		}
	}
	return figures
}

// flatFieldsOf knows the structs that it is within: a struct may embed a
// pointer to itself.
func flatFieldsOf(named *types.Named, within []*types.TypeName) int {
	form, ok := named.Underlying().(*types.Struct)
	if !ok || slices.Contains(within, named.Obj()) {
		return 1
	}
	total := 0
	for field := range form.Fields() {
		embedded := namedOf(field.Type())
		if field.Embedded() && embedded != nil && embedded.Obj().Pkg() == named.Obj().Pkg() {
			total += flatFieldsOf(embedded, append(slices.Clip(within), named.Obj()))
		} else {
			total++
		}
	}
	return total
}

// namedOf is the type that a type or a pointer is named by.
func namedOf(form types.Type) *types.Named {
	if pointer, ok := types.Unalias(form).(*types.Pointer); ok {
		form = pointer.Elem()
	}
	named, _ := types.Unalias(form).(*types.Named)
	return named
}

func mostFlatFields(t tree) reading { return largest(flatFields(t, t.production())) }

// largeFlatStructs leaves out gateway/config, as largeStructs does.
func largeFlatStructs(t tree) reading {
	outside := slices.DeleteFunc(t.production(), func(s *source) bool { return s.in("gateway/config") })
	return over(flatFields(t, outside), mostFieldsWanted)
}

// interfaceMethods counts the methods of each interface, with those of the
// interfaces of ours that it embeds. Constraints of type parameters count too.
func interfaceMethods(t tree) map[string]int {
	figures := map[string]int{}
	for name, named := range t.typesOf(t.production()) {
		if form, ok := named.Underlying().(*types.Interface); ok {
			figures[name] = form.NumMethods()
		}
	}
	return figures
}

func mostMethodsOfInterface(t tree) reading { return largest(interfaceMethods(t)) }
func largeInterfaces(t tree) reading        { return over(interfaceMethods(t), mostMethodsOfPort) }
