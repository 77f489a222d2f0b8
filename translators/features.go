package translators

// Features are the optional interfaces of a codec, asserted once. Those that it does not
// implement are nil.
type Features struct {
	Asker     InputStyler
	Carrier   Tunneled
	Changer   ChangeNotifier
	Notifier  Notifier
	Historian Historian
	Librarian ResourceProvider
	Mirrorer  HeaderMirror
	Namer     Namer
	Signaler  Signaler
	Stamper   Stamper
	Tasker    TaskStyler
}

// FeaturesOf asserts the optional interfaces of a codec; nil has none.
func FeaturesOf(t Translator) *Features {
	f := &Features{}
	f.Asker, _ = t.(InputStyler)
	f.Carrier, _ = t.(Tunneled)
	f.Changer, _ = t.(ChangeNotifier)
	f.Notifier, _ = t.(Notifier)
	f.Historian, _ = t.(Historian)
	f.Librarian, _ = t.(ResourceProvider)
	f.Mirrorer, _ = t.(HeaderMirror)
	f.Namer, _ = t.(Namer)
	f.Signaler, _ = t.(Signaler)
	f.Stamper, _ = t.(Stamper)
	f.Tasker, _ = t.(TaskStyler)
	return f
}
