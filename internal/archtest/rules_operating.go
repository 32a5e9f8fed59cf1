package archtest

// operating holds the rows of the packages with which people watch and steer what runs.
var operating = []rule{
	{
		"L5",
		[]string{"health"},
		[]string{"consumer", "broker", "@leaves"},
		"it says over HTTP what a consumer and a broker tell, so that neither links net/http",
	},
}
