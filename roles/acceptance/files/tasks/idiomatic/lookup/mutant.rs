use std::collections::HashMap;

pub struct Interface {
    pub name: String,
    pub up: bool,
    pub address: Option<String>,
}

pub struct Host {
    pub alias_of: Option<String>,
    pub interfaces: Vec<Interface>,
    pub preferred: Option<String>,
}

pub fn address<'a>(hosts: &'a HashMap<String, Host>, name: &str) -> Option<&'a str> {
    let named = hosts.get(name)?;
    let host = named.alias_of.as_ref().and_then(|target| hosts.get(target)).unwrap_or(named);
    let usable = || host.interfaces.iter().filter(|one| one.up && one.address.is_some());
    let preferred = usable().find(|one| host.preferred.as_ref() == Some(&one.name));
    preferred.or_else(|| usable().next())?.address.as_deref()
}

pub fn addresses<'a>(hosts: &'a HashMap<String, Host>, names: &[&str]) -> Result<Vec<&'a str>, String> {
    names.iter().map(|name| address(hosts, name).ok_or_else(|| name.to_string())).collect()
}
